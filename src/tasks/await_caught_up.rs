//! `await-caught-up`: every node of the new set is available, and its sidecar reports that it has caught up.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};

/// Waits until every entrant has caught up; a forced promotion does not wait for it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitCaughtUp {}

#[typetag::serde(name = "await-caught-up")]
#[async_trait]
impl Task for AwaitCaughtUp {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants,
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        Ok(if entrants.is_forced(fleet) { Outcome::Done } else { entrants.caught_up() })
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().skippable()
    }
}
