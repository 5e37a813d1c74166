//! `await-nodes-at-height`: every node of the old set has halted at the height.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::engine::sentence::some_of;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::planner::fleet::sets::{has_halted, stage::lowest_height};

/// Waits until every incumbent's sidecar reports that the incumbent has halted.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitNodesAtHeight {}

#[typetag::serde(name = "await-nodes-at-height")]
#[async_trait]
impl Task for AwaitNodesAtHeight {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let Some(rollout) = fleet.set_rollout() else { return Ok(Outcome::Done) };
        if let Ensured::NotNow(outcome) = entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            return Ok(outcome);
        }
        // A node that was lost and recreated has to be asked again.
        entrants::request_halt(fleet, &rollout, cx).await?;
        let facts = fleet.facts();
        if !facts.missing().is_empty() {
            return Ok(Outcome::waiting("waiting for missing nodes to be created"));
        }
        let without_sidecar: Vec<&str> =
            facts.wanted().filter(|c| c.sidecar.is_none()).map(|c| c.name.as_str()).collect();
        let waiting: Vec<&str> =
            facts.wanted().filter(|c| !has_halted(c, &rollout)).map(|c| c.name.as_str()).collect();
        let refused = facts.wanted().filter(|c| !has_halted(c, &rollout)).find_map(|c| {
            let message = c.sidecar.as_ref()?.message.as_ref();
            let refusal = || message.map(|message| format!("{}: {message}", c.name));
            entrants::unreachable(c).or_else(refusal)
        });
        let refused = refused.map(|why| format!("; {why}")).unwrap_or_default();
        let (at, task) = (rollout.halt_height, &cx.record.id);
        if waiting.is_empty() && facts.spec.replicas > 0 {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::waiting(if without_sidecar.is_empty() {
            let height = lowest_height(&facts);
            format!(
                "waiting for {} to halt at height {at}, the lowest is at {height}{refused}",
                some_of(&waiting)
            )
        } else {
            format!(
                "waiting for {} to halt at height {at}: no sidecar reports the halt; after the node has halted, \
                 annotate windlass.dev/skip={task}",
                some_of(&without_sidecar)
            )
        }))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().skippable()
    }
}
