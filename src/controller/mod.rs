//! The reconcile loops: observe, plan, persist, execute, persist. The planner decides and the engine executes; this
//! module combines the two and writes the status.

pub mod context;
mod ended;
pub mod events;
pub mod failures;
mod fleet;
mod hooks;
mod node;
mod record;
pub(crate) mod rollout;
mod save;
mod spans;

pub use crate::apply::ReconcileError;
pub use context::Context;
pub use fleet::KINDS_OF_A_SET;
pub use fleet::reconcile as reconcile_fleet;
pub use node::reconcile as reconcile_node;
pub use rollout::reconcile as reconcile_rollout;

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The resync period: how soon an object is reconciled without an event. [`Next::delay`] adds up to two minutes.
const SAFETY_POLL: Duration = Duration::from_mins(10);

/// When to requeue an object if no event comes first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Next(Option<Duration>);

impl Next {
    /// On the next event, and at the latest after the resync period.
    #[must_use]
    pub fn on_event() -> Self {
        Self(None)
    }

    /// Within this time. An earlier requeue is kept.
    #[must_use]
    pub fn within(self, after: Duration) -> Self {
        Self(Some(self.0.map_or(after, |known| known.min(after))))
    }

    /// Like [`Next::within`], if there is a time.
    #[must_use]
    pub fn within_some(self, after: Option<Duration>) -> Self {
        after.map_or(self, |after| self.within(after))
    }

    /// The earlier of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.within_some(other.0)
    }

    /// The time that was asked for, if one was.
    #[must_use]
    pub fn asked(self) -> Option<Duration> {
        self.0
    }

    /// At this time, if it is in the future: an overdue deadline has just been handled.
    #[must_use]
    pub fn at(self, time: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Self {
        let after = time.filter(|t| *t > now).and_then(|t| (t - now).to_std().ok());
        self.within_some(after.map(|d| d.max(Duration::from_millis(1))))
    }

    /// The requeue delay. The resync period is spread by `key`, so that not all objects are reconciled at the same
    /// time.
    #[must_use]
    pub fn delay(self, key: &str) -> Duration {
        let spread =
            key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))) % 120;
        let poll = SAFETY_POLL + Duration::from_secs(spread);
        self.0.map_or(poll, |after| after.min(poll))
    }
}

#[cfg(test)]
mod tests;
