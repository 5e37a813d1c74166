//! The only place in this crate that reads a clock, and the format of times.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The time now.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A monotonic reading, for time-outs and back-off.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
