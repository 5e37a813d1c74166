//! `await-nodes-running`: every node of the new set was observed at the target.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Waits until every entrant's pod was observed to run the target.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitNodesRunning {}

#[typetag::serde(name = "await-nodes-running")]
#[async_trait]
impl Task for AwaitNodesRunning {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants,
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        Ok(entrants.running())
    }
}
