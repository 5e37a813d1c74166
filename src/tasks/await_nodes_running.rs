//! `await-nodes-running`: every node of the new set was observed at the target.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants, fleet_scope::some_of};
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::planner::fleet::Scope;

/// Waits until every entrant's pod was observed to run the target.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitNodesRunning {}

#[typetag::serde(name = "await-nodes-running")]
#[async_trait]
impl Task for AwaitNodesRunning {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants::Entrants { rollout, view } = match entrants::keep_up(fleet, &cx.plan.id).await? {
            Ok(entrants) => entrants,
            Err(waiting) => return Ok(waiting),
        };
        let scope = Scope::Target(rollout.target);
        let waiting: Vec<&str> =
            view.wanted().filter(|c| !view.is_updated(c, &scope)).map(|c| c.name.as_str()).collect();
        if waiting.is_empty() {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::waiting(format!("waiting for {} to run the target", some_of(&waiting))))
    }
}
