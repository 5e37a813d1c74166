//! `await-approval`: a person has said that it may go on.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::HookParams;
use super::turn::{Turn, due};
use crate::api::names::ANNOTATION_APPROVE;
use crate::engine::{Due, Outcome, Task, TaskContext, TaskError};

/// How soon it is looked at again should the annotation not announce itself.
const AGAIN: Duration = Duration::from_mins(5);

/// Waits for a person.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct AwaitApproval(pub HookParams);

#[typetag::serde(name = "await-approval")]
#[async_trait]
impl Task for AwaitApproval {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let turn = match Turn::of(cx, &self.0) {
            Ok(turn) => turn,
            Err(outcome) => return Ok(outcome),
        };
        let id = &cx.record.id;
        if turn.scope.approved.iter().any(|approved| approved == id) {
            return Ok(Outcome::Done);
        }
        if turn.is_overdue() {
            return Ok(turn.is_late("nobody approved"));
        }
        let fleet = turn.scope.owner.fleet.as_str();
        Ok(turn.waits(
            format!(
                "waiting for a person to approve hook {} of {}: windlass approve nd/{fleet}, or the annotation \
                 {ANNOTATION_APPROVE}={id}",
                turn.hook.name, turn.scope.owner.name
            ),
            AGAIN,
        ))
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
