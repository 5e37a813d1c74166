//! The reason why a node is not ready.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason why a node is not ready.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Problem {
    /// The reason of the kubelet, the scheduler or Windlass. If the kubelet alternates between reasons, it is
    /// a constant one.
    pub reason: String,
    /// message explains the reason.
    #[serde(default)]
    pub message: String,
    /// The time since which the node has been unready, even if the reason has changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: DateTime<Utc>,
    /// The end of the pod's grace period, or of the time that a container's startup probe or
    /// `initialDelaySeconds` allows. Deadlines do not count the time before it.
    #[serde(default, rename = "allowedUntil", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub allowed_until: Option<DateTime<Utc>>,
    /// The container that has the problem, if it is a container's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The UID of the pod that has the problem, if it is a pod's or a container's.
    #[serde(default, rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
}

/// The maximum length of the message about a node's problem, in bytes.
pub const MAX_PROBLEM_BYTES: usize = 768;
