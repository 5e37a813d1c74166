//! The history of ended plans in a status.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::sentence::cut;

/// A plan that ended.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The ID of the plan.
    #[serde(rename = "planID", default)]
    pub plan_id: String,
    /// The recipe of the plan.
    #[serde(default)]
    pub recipe: String,
    /// The hash that ran before the plan; empty if there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from_hash: String,
    /// The hash of the plan's target.
    #[serde(default)]
    pub target_hash: String,
    /// outcome is `Complete`, `Superseded`, `Aborted`, `RolledBack` or `Failed`.
    #[serde(default)]
    pub outcome: String,
    /// The reason for the outcome.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// message contains the user requests for the plan, for example `abort by alice: disk full`, after the cause of a
    /// rollback. For a plan MoveNode, it names the machine that the pod leaves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The time at which the plan began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started_at: Option<DateTime<Utc>>,
    /// The time at which the plan ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub finished_at: Option<DateTime<Utc>>,
}

/// The maximum number of ended plans in an object's history.
pub const HISTORY_LIMIT: usize = 10;

/// Appends an entry and drops the oldest ones beyond [`HISTORY_LIMIT`]. A reason or a message that is too long is
/// truncated.
pub fn remember(history: &mut Vec<HistoryEntry>, entry: HistoryEntry) {
    let (reason, message) = (cut(&entry.reason, MAX_REASON_BYTES), cut(&entry.message, MAX_ASKED_BYTES));
    history.push(HistoryEntry { reason, message, ..entry });
    let surplus = history.len().saturating_sub(HISTORY_LIMIT);
    history.drain(..surplus);
}

/// The maximum length of a reason in the history, in bytes.
const MAX_REASON_BYTES: usize = 200;

/// The maximum length of the text about user requests, in bytes.
pub const MAX_ASKED_BYTES: usize = 256;
