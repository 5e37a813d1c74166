//! The only place that reads a clock. Everything else gets the time as an argument, so that it can be replayed.

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};

/// A source of wall-clock time in UTC.
pub trait Clock: Send + Sync {
    /// The time now, with a resolution of one microsecond (what Kubernetes' `MicroTime` can hold).
    fn now(&self) -> DateTime<Utc>;
}

/// A clock that can be shared between controllers and tasks.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock module")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
}

/// A monotonic reading, to measure waits within this process. Follows tokio's clock, so that paused time in tests
/// pauses it too.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
#[must_use]
pub fn monotonic() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A monotonic reading of the machine's clock, independent of tokio's: for pacing a paused clock.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
#[must_use]
pub fn on_the_wall() -> std::time::Instant {
    std::time::Instant::now()
}
