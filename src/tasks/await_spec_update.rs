//! `await-spec-update`: every node was observed at what it was granted.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CHILD_CHANGED, FleetScope};
use crate::engine::sentence::some_of;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};

/// Waits until every node's pod was observed at the target.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitSpecUpdate {}

#[typetag::serde(name = "await-spec-update")]
#[async_trait]
impl Task for AwaitSpecUpdate {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let facts = fleet.facts();
        let rollout_target = &fleet.rollout_target;
        if let Some(child) = facts.wanted().find(|c| !facts.is_granted(c, rollout_target)) {
            let message = format!("{} no longer matches its grant", child.name);
            return Ok(Outcome::invalidated(CHILD_CHANGED, message));
        }
        let waiting: Vec<&str> = facts
            .wanted()
            .filter(|c| !facts.is_updated(c, rollout_target))
            .map(|c| c.name.as_str())
            .collect();
        if !waiting.is_empty() {
            return Ok(Outcome::waiting(format!("waiting for {} to run the target", some_of(&waiting))));
        }
        if facts.missing().is_empty() && facts.conflicts.is_empty() && facts.spec.replicas > 0 {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::waiting("waiting for missing nodes to be created"))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
