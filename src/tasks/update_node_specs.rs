//! `update-node-specs`: every node of the fleet has been granted the target, a wave at a time.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::api::GrantedBy;
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::engine::sentence::some_of;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::observe::fleet_scope::FleetScope;
use crate::planner::fleet::wave::waits_for_turn;
use crate::planner::fleet::{WAITS_TO_BE_RESUMED, hooks, next_grants, progress};

/// Writes the target revision into the nodes and grants it to them, as the wave allows.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateNodeSpecs {
    /// The index in `inPlace.steps` of the step up to which nodes are updated; `None` for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<usize>,
}

#[typetag::serde(name = "update-node-specs")]
#[async_trait]
impl Task for UpdateNodeSpecs {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let facts = fleet.facts();
        if facts.spec.paused {
            return Ok(Outcome::waiting(WAITS_TO_BE_RESUMED));
        }
        if hooks::hold_grants(&facts, &fleet.rollout_target) {
            let failure = hooks::failure(&facts).unwrap_or_default();
            return Ok(Outcome::waiting(format!("no further node gets a grant: {failure}")));
        }
        let grants = next_grants(&facts, &fleet.rollout_target);
        let grants = match self.step {
            Some(step) => hooks::within_step(&facts, &fleet.rollout_target, step, grants),
            None => grants,
        };
        if let Some(differs) =
            fleet.grant_if_pods_confirmed(&facts, grants, GrantedBy::Plan(&cx.plan.id)).await?
        {
            return Ok(Outcome::recheck(differs, REQUEUE_STALE_PODS));
        }
        let facts = fleet.facts();
        if let Some(step) = self.step {
            let size = hooks::size_of_step(&facts, step);
            return Ok(if hooks::is_step_done(&facts, &fleet.rollout_target, step) {
                Outcome::Done
            } else {
                let gate = facts.waits_for_gate(&fleet.rollout_target);
                let turn = gate.or_else(|| waits_for_turn(&facts, &fleet.rollout_target));
                let turn = turn.map(|turn| format!("; {turn}")).unwrap_or_default();
                Outcome::waiting(format!(
                    "waiting for {size} nodes to be ready at the target: a step of the rollout{turn}"
                ))
            });
        }
        let ungranted: Vec<&str> = facts
            .wanted()
            .filter(|c| !facts.is_granted(c, &fleet.rollout_target))
            .map(|c| c.name.as_str())
            .collect();
        if !ungranted.is_empty() {
            let gate = facts.waits_for_gate(&fleet.rollout_target);
            let why = match gate.or_else(|| waits_for_turn(&facts, &fleet.rollout_target)) {
                Some(sentence) => sentence,
                None => format!("waiting for the wave: {}", facts.used_room()),
            };
            return Ok(Outcome::waiting(format!("{why}; not updated yet: {}", some_of(&ungranted))));
        }
        if !facts.missing().is_empty() || !facts.conflicts.is_empty() {
            return Ok(Outcome::waiting("waiting for missing nodes to be created"));
        }
        let held = facts.held_below();
        if held > 0 && facts.differs_below_partition(&fleet.rollout_target) {
            return Ok(if progress::is_held_by_partition(&facts, &fleet.rollout_target) {
                Outcome::waiting(format!(
                    "waiting for the partition to be lowered: ordinals below {held} keep the current revision"
                ))
            } else {
                Outcome::waiting(format!("waiting for the nodes from ordinal {held} to be ready"))
            });
        }
        Ok(Outcome::Done)
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
