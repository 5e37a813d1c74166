//! `submit-halt`: every node of the old set was asked to halt at the height.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Asks the incumbents to halt, by their specs: their executors ask their sidecars.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitHalt {}

#[typetag::serde(name = "submit-halt")]
#[async_trait]
impl Task for SubmitHalt {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let Some(rollout) = fleet.set_rollout() else { return Ok(Outcome::Done) };
        let running = match entrants::keep_up(fleet, &cx.plan.id).await? {
            Ok(entrants) => entrants.running(),
            Err(outcome) => return Ok(outcome),
        };
        // There is no way back from here, so it has to be persisted first that this is where we are.
        if rollout.is_revocable() || rollout.halt_height == 0 {
            return Ok(Outcome::waiting("waiting for the promotion to be recorded"));
        }
        // They ran when this was recorded. Where some were asked already the others halt at the same height.
        if running != Outcome::Done && !entrants::is_begun(fleet, &rollout) {
            return Ok(running);
        }
        entrants::ask_to_halt(fleet, &rollout, cx).await?;
        match entrants::unasked(fleet, &rollout).first() {
            Some(name) => Ok(Outcome::waiting(format!("waiting for {name} to be asked to halt"))),
            None => Ok(Outcome::Done),
        }
    }

    fn replayable(&self) -> bool {
        true
    }
}
