//! Why a node does not serve.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a node does not serve.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Problem {
    /// The kubelet's or scheduler's reason; of those that a kubelet alternates between, one that stays.
    pub reason: String,
    /// Their sentence.
    #[serde(default)]
    pub message: String,
    /// Since when the node does not serve, whatever the reason was at first.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: DateTime<Utc>,
    /// Until when Kubernetes gives it time: the end of its pod's grace period, or of what the startup probe or
    /// `initialDelaySeconds` of a container gives it. No deadline counts the time before.
    #[serde(default, rename = "allowedUntil", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub allowed_until: Option<DateTime<Utc>>,
    /// The container that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The UID of the pod that it is about, where it is about one pod or one of its containers.
    #[serde(default, rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
}

/// The maximum length of the message about a node's problem, in bytes.
pub const MAX_PROBLEM_BYTES: usize = 768;
