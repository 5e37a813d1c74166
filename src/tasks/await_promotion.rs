//! `await-promotion`: the new set may take over.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::planner::fleet::sets::how_to_promote;

/// Waits for a person under `promotion: Manual`, until the entrants may take over, and while the fleet is paused.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitPromotion {}

#[typetag::serde(name = "await-promotion")]
#[async_trait]
impl Task for AwaitPromotion {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants,
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        if let Some(blocker) = &fleet.blocker {
            return Ok(Outcome::waiting(format!("waiting for a spec that can be applied: {blocker}")));
        }
        let ready = entrants.may_take_over(fleet, cx.plan);
        if !entrants.view.awaits_person() {
            return Ok(ready);
        }
        let (target, spent) = (&entrants.rollout.target, &fleet.fleet.status.spent_force_promote);
        let is_spent = *target == **spent && fleet.spec.force_promote == *spent;
        let how = how_to_promote(target, is_spent);
        Ok(Outcome::waiting(match ready {
            // A person who promotes forces the promotion, which waits for no node to catch up.
            Outcome::Waiting { message, .. } if entrants.are_available(fleet) => {
                format!("{message}; after that, a manual promotion is needed; to promote now, {how}")
            }
            // A forced promotion does not even wait for nodes to be ready and would cut all traffic, so the message
            // does not say how.
            Outcome::Waiting { message, .. } => {
                format!("{message}; after that, a manual promotion is needed")
            }
            _ => format!("waiting for a manual promotion: {how}"),
        }))
    }
}
