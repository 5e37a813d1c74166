//! `await-caught-up`: every node of the new set is Ready, and has caught up by what its sidecar says.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants, fleet_scope::some_of};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Waits until every entrant has caught up; a forced promotion does not wait for it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitCaughtUp {}

#[typetag::serde(name = "await-caught-up")]
#[async_trait]
impl Task for AwaitCaughtUp {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants::Entrants { view, .. } = match entrants::keep_up(fleet, &cx.plan.id).await? {
            Ok(entrants) => entrants,
            Err(waiting) => return Ok(waiting),
        };
        let names = |wanted: &dyn Fn(&crate::planner::fleet::ChildFacts) -> bool| {
            view.wanted().filter(|c| wanted(c)).map(|c| c.name.as_str()).collect::<Vec<_>>()
        };
        let behind = names(&|c| !c.is_caught_up());
        if behind.is_empty() || (view.force_promote && fleet.invalid.is_none()) {
            return Ok(Outcome::Done);
        }
        let unready = names(&|c| !c.ready || c.terminating);
        Ok(Outcome::waiting(if unready.is_empty() {
            format!("waiting for {} to catch up, by what its sidecar says", some_of(&behind))
        } else {
            format!("waiting for {} to be ready", some_of(&unready))
        }))
    }

    fn skippable(&self) -> bool {
        true
    }
}
