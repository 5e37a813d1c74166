//! `await-promotion`: the new set may take over.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Waits for a person under `promotion: Manual`, and until the entrants run and the fleet is not paused.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitPromotion {}

#[typetag::serde(name = "await-promotion")]
#[async_trait]
impl Task for AwaitPromotion {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let entrants::Entrants { rollout, view } = match entrants::keep_up(fleet, &cx.plan.id).await? {
            Ok(entrants) => entrants,
            Err(waiting) => return Ok(waiting),
        };
        if let Some(sentence) = &fleet.invalid {
            return Ok(Outcome::waiting(format!("waiting for a spec that can be carried out: {sentence}")));
        }
        if view.awaits_person() {
            return Ok(Outcome::waiting(format!(
                "waiting for a person: set spec.forcePromote to {}",
                rollout.target
            )));
        }
        // They ran once; what is promoted has to run now.
        if !fleet.facts().entrants_run(&rollout) {
            return Ok(Outcome::waiting("waiting for every new node to run the target again"));
        }
        Ok(Outcome::Done)
    }
}
