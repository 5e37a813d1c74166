//! `await-approval`: a person has said that it may go on.

use std::time::Duration;

use super::turn::{Turn, hook_task};
use crate::api::names::ANNOTATION_APPROVE;
use crate::engine::Outcome;

/// How soon it is looked at again should the annotation not announce itself.
const AGAIN: Duration = Duration::from_mins(5);

hook_task! {
    /// Waits for a person.
    AwaitApproval = "await-approval", |turn| Ok(approved(&turn))
}

fn approved(turn: &Turn<'_>) -> Outcome {
    let id = &turn.cx.record.id;
    if turn.scope.approved.iter().any(|approved| approved == id) {
        return Outcome::Done;
    }
    if turn.is_overdue() {
        return turn.is_late("nobody approved");
    }
    turn.waits(
        format!(
            "waiting for a person to approve hook {} of {}: windlass approve {}, or the annotation \
             {ANNOTATION_APPROVE}={id}",
            turn.hook.name,
            turn.scope.owner.name,
            turn.scope.owner.asked_as()
        ),
        AGAIN,
    )
}
