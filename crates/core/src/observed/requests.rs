//! Requests of people in annotations: which of them are new, and what they name. Pure.

use super::meta::{Meta, parse_time};
use crate::api::RestartTime;
use crate::api::names::ANNOTATION_RESTARTED_AT;

/// The plan that a value of `windlass.dev/retry` names. What follows a slash only distinguishes one request from
/// another.
#[must_use]
pub fn retried_plan(asked: &str) -> &str {
    asked.split('/').next().unwrap_or_default()
}

/// A requested restart that has not been accepted yet. A request from before the fleet's creation was meant for an
/// earlier fleet of that name and is ignored.
#[must_use]
pub fn restart_request(meta: &Meta, obeyed: Option<&RestartTime>) -> Option<RestartTime> {
    let asked = meta.annotation(ANNOTATION_RESTARTED_AT)?;
    let asked_at = parse_time(asked)?;
    if meta.created_at.is_some_and(|made| asked_at <= made) {
        return None;
    }
    let obeyed_at = obeyed.and_then(|obeyed| parse_time(obeyed.as_str()));
    RestartTime::recorded(asked).filter(|_| obeyed_at.is_none_or(|at| asked_at > at))
}
