//! The reconcile loops: observe, plan, persist, execute, persist. Nothing is decided here; the planner
//! decides, the engine carries out, and this floor puts the two together and writes the status.

pub mod context;
pub mod error;
pub mod events;
mod fleet;
mod fleet_asked;
mod fleet_change;
mod fleet_children;
mod fleet_objects;
pub mod metrics;
mod node;
mod node_objects;
mod save;

pub use context::Context;
pub use error::ReconcileError;
pub use fleet::reconcile as reconcile_fleet;
pub use node::reconcile as reconcile_node;

use std::time::Duration;

use chrono::{DateTime, Utc};

/// When an object is looked at again although nothing happened, at the latest.
const SAFETY_POLL: Duration = Duration::from_mins(10);

/// When an object has to be looked at again if no event comes first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Next(Option<Duration>);

impl Next {
    /// Not before an event, or the safety poll.
    #[must_use]
    pub fn on_event() -> Self {
        Self(None)
    }

    /// After this long, or sooner if that was asked before.
    #[must_use]
    pub fn within(self, after: Duration) -> Self {
        Self(Some(self.0.map_or(after, |known| known.min(after))))
    }

    /// As [`Next::within`], where there is something to wait for.
    #[must_use]
    pub fn within_some(self, after: Option<Duration>) -> Self {
        after.map_or(self, |after| self.within(after))
    }

    /// At this time, if it is still to come: what is overdue was seen just now.
    #[must_use]
    pub fn at(self, time: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Self {
        let after = time.filter(|t| *t > now).and_then(|t| (t - now).to_std().ok());
        self.within_some(after.map(|d| d.max(Duration::from_millis(1))))
    }

    /// How long to wait; the safety poll is spread by `key`, so that not all objects are looked at at once.
    #[must_use]
    pub fn delay(self, key: &str) -> Duration {
        let spread =
            key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))) % 120;
        let poll = SAFETY_POLL + Duration::from_secs(spread);
        self.0.map_or(poll, |after| after.min(poll))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_900_000_000 + seconds, 0).unwrap_or_default()
    }

    #[test]
    fn the_first_of_several_times_is_when_an_object_is_looked_at_again() {
        let next = Next::on_event();
        assert_eq!(next.within(seconds(30)).delay("a"), seconds(30));
        assert_eq!(next.within(seconds(30)).within(seconds(5)).delay("a"), seconds(5));
        assert_eq!(next.within(seconds(5)).within(seconds(30)).delay("a"), seconds(5));
        assert_eq!(next.within_some(Some(seconds(7))).delay("a"), seconds(7));
        assert_eq!(next.within(seconds(5)).within_some(None), next.within(seconds(5)));
        assert_eq!(next.at(Some(at(12)), at(0)).delay("a"), seconds(12));
        assert_eq!(next.at(Some(at(12)), at(0)).at(Some(at(4)), at(0)).delay("a"), seconds(4));
    }

    #[test]
    fn what_is_overdue_or_due_now_was_seen_just_now_and_is_not_waited_for() {
        let next = Next::on_event();
        assert_eq!(next.at(None, at(0)), next);
        assert_eq!(next.at(Some(at(0)), at(0)), next);
        assert_eq!(next.at(Some(at(-5)), at(0)), next);
        let soon = at(0) + chrono::TimeDelta::nanoseconds(10);
        assert_eq!(
            next.at(Some(soon), at(0)).delay("a"),
            Duration::from_millis(1),
            "never at once, over and over"
        );
    }

    #[test]
    fn without_any_time_an_object_is_looked_at_all_the_same_and_not_all_of_them_at_once() {
        let polls: Vec<Duration> =
            (0..100).map(|n| Next::on_event().delay(&format!("shop/db-{n}"))).collect();
        assert!(
            polls.iter().all(|poll| (SAFETY_POLL..SAFETY_POLL + seconds(120)).contains(poll)),
            "{polls:?}"
        );
        let different: std::collections::BTreeSet<&Duration> = polls.iter().collect();
        assert!(different.len() > 30, "{different:?}");
        assert_eq!(polls[3], Next::on_event().delay("shop/db-3"), "the same at every look");
        let late = Next::on_event().within(seconds(3600));
        assert_eq!(late.delay("shop/db-3"), polls[3], "the poll is not put off");
    }
}
