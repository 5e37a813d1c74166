//! Conditions as the Kubernetes API conventions describe them, and the closed set of types and reasons.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::condition_types::{
    DISRUPTION_BUDGET_READY, HELD, NODE_UPDATE_IN_PROGRESS, READY, RECONCILING, ROLLOUT_IN_PROGRESS,
    SIDECAR_READY, STALLED, TOPOLOGY_KNOWN, Truth, UP_TO_DATE,
};
use crate::engine::sentence::cut;

/// One aspect of an object's observed state.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition, for example `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// status is `True`, `False` or `Unknown`.
    pub status: String,
    /// A one-word identifier for the cause of the condition's status.
    pub reason: String,
    /// message explains the reason in text. It may be empty.
    #[serde(default)]
    pub message: String,
    /// The last time at which `status` changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: DateTime<Utc>,
    /// The `metadata.generation` that the condition is based on.
    #[serde(default)]
    pub observed_generation: i64,
}

/// The condition of this type, if it is present.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// True if the condition of this type is present and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == Truth::True.as_ref())
}

/// The maximum length of a condition's message, in bytes: the size of an object's status is limited.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// Updates a condition in place, or appends it. The transition time changes only if the status changes. A message that
/// is too long is truncated.
#[cfg_attr(test, allow(clippy::missing_panics_doc, reason = "only unit tests check the closed set"))]
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    truth: Truth,
    reason: impl AsRef<str>,
    message: &str,
    generation: i64,
    now: DateTime<Utc>,
) {
    let reason = reason.as_ref();
    // The set of reasons is closed: the documentation and other tools know no others.
    #[cfg(test)]
    assert!(super::reasons::is_known_reason(type_, truth, reason), "{type_}={truth} may not say {reason}");
    let status = truth.as_ref();
    let next = |since| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: cut(message, MAX_MESSAGE_BYTES),
        last_transition_time: since,
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(old) => {
            let since = if old.status == status { old.last_transition_time } else { now };
            *old = next(since);
        }
        None => conditions.push(next(now)),
    }
}

/// Adds sentences to the message of a condition. If there is not enough room, the message is cut, not the sentences.
pub fn add_to_message(conditions: &mut [Condition], type_: &str, sentences: &[&str]) {
    let Some(condition) = conditions.iter_mut().find(|c| c.type_ == type_) else { return };
    let added = sentences.iter().flat_map(|sentence| ["; ", sentence]).collect::<String>();
    let room = MAX_MESSAGE_BYTES.saturating_sub(added.len());
    let message = cut(&condition.message, room) + &added;
    condition.message = cut(message.trim_start_matches("; "), MAX_MESSAGE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Reason;

    #[test]
    fn appended_sentence_survives_message_truncation() {
        let mut all = Vec::new();
        let long = "x".repeat(MAX_MESSAGE_BYTES);
        set(&mut all, UP_TO_DATE, Truth::Unknown, Reason::Applying, &long, 1, DateTime::default());
        add_to_message(&mut all, UP_TO_DATE, &["a setting has no effect"]);
        let message = &all[0].message;
        assert!(
            message.len() <= MAX_MESSAGE_BYTES && message.ends_with("; a setting has no effect"),
            "{message}"
        );
        all[0].message.clear();
        add_to_message(&mut all, UP_TO_DATE, &["one", "two"]);
        assert_eq!(all[0].message, "one; two");
    }
}
