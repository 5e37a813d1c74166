//! `await-approval`: a person has approved the hook.

use std::time::Duration;

use super::turn::{Answer, Turn, hook_task};
use crate::api::names::ANNOTATION_APPROVE;
use crate::engine::Outcome;

/// The requeue delay, in case no watch event reports the annotation.
const AGAIN: Duration = Duration::from_mins(5);

hook_task! {
    /// Waits until a person approves.
    AwaitApproval = "await-approval", |turn| approved(&turn)
}

fn approved(turn: &Turn<'_>) -> Answer {
    let id = &turn.cx.record.id;
    if turn.scope.approved.iter().any(|approved| approved == id) {
        return Ok(Outcome::Done);
    }
    if turn.is_overdue() {
        return turn.is_late("nobody approved");
    }
    Ok(turn.waits(
        format!(
            "waiting for approval: windlass approve {}, or annotate {ANNOTATION_APPROVE}={id}",
            turn.scope.owner.command_argument()
        ),
        AGAIN,
    ))
}
