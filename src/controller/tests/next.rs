//! When an object is requeued.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::super::{Next, SAFETY_POLL};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000 + seconds, 0).unwrap_or_default()
}

#[test]
fn earliest_deadline_determines_the_requeue() {
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
fn overdue_deadlines_are_ignored_in_the_requeue() {
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
fn safety_poll_is_jittered_and_never_postponed() {
    let polls: Vec<Duration> = (0..100).map(|n| Next::on_event().delay(&format!("shop/db-{n}"))).collect();
    assert!(polls.iter().all(|poll| (SAFETY_POLL..SAFETY_POLL + seconds(120)).contains(poll)), "{polls:?}");
    let different: std::collections::BTreeSet<&Duration> = polls.iter().collect();
    assert!(different.len() > 30, "{different:?}");
    assert_eq!(polls[3], Next::on_event().delay("shop/db-3"), "the same at every look");
    let late = Next::on_event().within(seconds(3600));
    assert_eq!(late.delay("shop/db-3"), polls[3], "the poll is not put off");
}
