//! `wait`: some time has passed.

use async_trait::async_trait;
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::HookParams;
use super::turn::{Turn, due};
use crate::api::HookAction;
use crate::engine::{Due, Outcome, Task, TaskContext, TaskError};

/// Waits for a time.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Wait(pub HookParams);

#[typetag::serde(name = "wait")]
#[async_trait]
impl Task for Wait {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let turn = match Turn::of(cx, &self.0) {
            Ok(turn) => turn,
            Err(outcome) => return Ok(outcome),
        };
        let Some(HookAction::Wait(wait)) = turn.hook.action() else { return Ok(Outcome::Done) };
        // It began when it first ran, which is persisted: an operator that is restarted does not begin anew.
        let began = cx.record.started_at.unwrap_or(cx.now);
        let until = began.checked_add_signed(TimeDelta::seconds(wait.seconds)).unwrap_or(began);
        let Ok(left) = (until - cx.now).to_std() else { return Ok(Outcome::Done) };
        if left.is_zero() {
            return Ok(Outcome::Done);
        }
        if turn.is_overdue() {
            return Ok(turn.is_late(&format!("it waits for {} s", wait.seconds)));
        }
        let message = format!(
            "waiting for {} s to pass (hook {}), until {}",
            wait.seconds,
            turn.hook.name,
            clock(until)
        );
        Ok(turn.waits(message, left))
    }

    fn skippable(&self) -> bool {
        true
    }

    fn holds(&self) -> bool {
        true
    }

    fn due(&self, cx: &TaskContext<'_>) -> Due {
        due(cx, &self.0)
    }
}

fn clock(at: chrono::DateTime<chrono::Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
