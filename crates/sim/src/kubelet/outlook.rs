//! Types of the status computation.

use chrono::{DateTime, SecondsFormat, Utc};
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;
use tokio::time::Instant;

/// A reading of both clocks: one for timers, one for timestamps.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) wall: DateTime<Utc>,
}

/// A status to write, and when to check again without an event.
#[derive(Debug)]
pub(super) struct Outlook {
    pub(super) status: Value,
    pub(super) again: Option<Instant>,
    /// Why the pod cannot start, as the kubelet says it in events: reason and message.
    pub(super) warning: Option<(&'static str, String)>,
}

/// A native sidecar outlives the other init containers and starts before the main ones.
pub(super) fn is_native_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// A time as in a status.
pub(super) fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
