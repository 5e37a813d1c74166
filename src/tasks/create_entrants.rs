//! `create-entrants`: every node of the new set exists, at the target.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Creates the nodes of the set that will take over. They do not serve yet, so all of them are created at once.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreateEntrants {
    /// True if the nodes must also run, before a step that cannot be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
}

#[typetag::serde(name = "create-entrants")]
#[async_trait]
impl Task for CreateEntrants {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants,
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        if !self.running {
            return Ok(Outcome::Done);
        }
        Ok(entrants.running())
    }
}
