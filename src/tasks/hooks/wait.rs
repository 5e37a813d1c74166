//! `wait`: some time has passed.

use chrono::{SecondsFormat, TimeDelta};

use super::turn::{Answer, Turn, hook_task};
use crate::api::HookAction;
use crate::engine::Outcome;

hook_task! {
    /// Waits for a number of seconds.
    Wait = "wait", |turn| passed(&turn)
}

fn passed(turn: &Turn<'_>) -> Answer {
    let Some(HookAction::Wait(wait)) = turn.hook.action() else { return Ok(Outcome::Done) };
    // The start of the task is persisted, so a restart of the operator does not start the wait again.
    let began = turn.cx.record.started_at.unwrap_or(turn.cx.now);
    let until = began.checked_add_signed(TimeDelta::seconds(wait.seconds)).unwrap_or(began);
    let Ok(left) = (until - turn.cx.now).to_std() else { return Ok(Outcome::Done) };
    if left.is_zero() {
        return Ok(Outcome::Done);
    }
    if turn.is_overdue() {
        return turn.is_late(&format!("the wait takes {} s", wait.seconds));
    }
    let message =
        format!("waiting for {} s, until {}", wait.seconds, until.to_rfc3339_opts(SecondsFormat::Secs, true));
    Ok(turn.waits(message, left))
}
