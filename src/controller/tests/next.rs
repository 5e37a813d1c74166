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
    let polls: Vec<Duration> = (0..100).map(|n| Next::on_event().delay(&format!("shop/db-{n}"))).collect();
    assert!(polls.iter().all(|poll| (SAFETY_POLL..SAFETY_POLL + seconds(120)).contains(poll)), "{polls:?}");
    let different: std::collections::BTreeSet<&Duration> = polls.iter().collect();
    assert!(different.len() > 30, "{different:?}");
    assert_eq!(polls[3], Next::on_event().delay("shop/db-3"), "the same at every look");
    let late = Next::on_event().within(seconds(3600));
    assert_eq!(late.delay("shop/db-3"), polls[3], "the poll is not put off");
}
