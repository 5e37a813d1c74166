//! The progress clock does not count the time that Kubernetes or the spec gives a node.

use super::super::progress::overdue_at as node_overdue_at;
use super::super::status::{is_stalled, stall_deadline};
use super::super::{GrantTime, SetFacts, Strategy};
use super::*;
use crate::api::Stage;
use crate::api::conditions::{STALLED, find};
use crate::planner::waits::Wait;

#[allow(clippy::unnecessary_wraps, reason = "as the field has it")]
fn wait(from: i64, until: i64) -> Option<Wait> {
    Some(Wait { from: later(from), until: later(until) })
}

fn rolling(facts: &FleetFacts) -> NodeDeploymentStatus {
    look(rolling_out(facts, &start(to("v2"), "v2", Cause::TemplateChanged)), facts, 0)
}

/// Three nodes, the last of which was granted v2.
fn moving(change: impl Fn(ChildFacts) -> ChildFacts) -> FleetFacts {
    fleet(3).wanting("v2").but(2, |c| change(c.granted("v2").seen()))
}

/// Its pod is deleted at one time, and has its grace period until the other.
fn terminating(from: i64, until: i64) -> FleetFacts {
    moving(|c| c.down().with(|f| f.health.wait = wait(from, until)))
}

/// It is Ready since a time, and has to be for 900 s.
fn proving(since: i64) -> FleetFacts {
    let ready = |c: ChildFacts| {
        c.converged().with(|f| {
            f.pod.available = false;
            f.health.wait = wait(since, since + 900);
        })
    };
    moving(ready)
}

fn counted(status: &NodeDeploymentStatus) -> DateTime<Utc> {
    status.rollout.as_ref().unwrap().last_progress_at
}

#[test]
fn healthy_rollout_does_not_stall_during_min_ready_seconds() {
    let status = rolling(&terminating(0, 30));
    let ready = proving(100);
    let status = look(status, &ready, 100);
    for seconds in [101, 700, 701, 999] {
        assert!(!is_stalled(&status, &ready, later(seconds)), "{seconds}");
        assert_eq!(look(status.clone(), &ready, seconds), status, "{seconds}: nothing is written");
    }
    let done = look(status, &moving(ChildFacts::converged), 1000);
    assert_eq!(counted(&done), later(1000));
}

#[test]
fn terminating_pod_extends_deadline_by_its_grace_period() {
    let facts = terminating(0, 1800);
    let status = rolling(&facts);
    assert_eq!(stall_deadline(&status, &facts, later(10)), Some(later(2400)));
    assert!(!is_stalled(&status, &facts, later(1799)));
    let over = look(status, &facts, 1800);
    assert!(!is_stalled(&over, &facts, later(2399)) && is_stalled(&over, &facts, later(2400)));
    let stalled = look(over, &facts, 2400);
    let message = &find(&stalled.conditions, STALLED).unwrap().message;
    assert_eq!(*message, super::overdue_at(2400, "db-2: NotReady: it is not ready"));
}

#[test]
fn time_outside_a_wait_counts_toward_the_deadline() {
    let status = rolling(&moving(ChildFacts::down));
    let ends = terminating(200, 2000);
    let status = look(status, &ends, 200);
    // It ends before its time is over.
    let status = look(status, &moving(ChildFacts::down), 1000);
    let due = stall_deadline(&status, &moving(ChildFacts::down), later(1000));
    assert_eq!(due, Some(later(1400)), "200 s were counted before it");
}

#[test]
fn wait_counts_from_its_start_rather_than_its_detection() {
    let status = rolling(&moving(ChildFacts::down));
    let ends = terminating(10, 1800);
    assert!(!is_stalled(&status, &ends, later(600)), "it is noticed as the clock runs out");
    let status = look(status, &ends, 600);
    assert_eq!(stall_deadline(&status, &ends, later(600)), Some(later(1800 + 590)));
}

#[test]
fn node_flapping_within_min_ready_seconds_stalls_the_rollout() {
    let mut status = rolling(&moving(ChildFacts::down));
    let down = moving(|c| c.running("v2").down());
    let mut seconds = 0;
    while !is_stalled(&status, &down, later(seconds)) {
        status = look(status, &proving(seconds), seconds);
        status = look(status, &down, seconds + 300);
        seconds += 400;
        assert!(seconds < 10_000, "it never stalls");
    }
    assert_eq!(seconds, 6 * 400, "of each 400 s, 100 are counted");
}

#[test]
fn wait_does_not_clear_a_stalled_rollout() {
    let status = look(rolling(&moving(ChildFacts::down)), &moving(ChildFacts::down), 600);
    let ends = terminating(700, 2500);
    assert!(is_stalled(&status, &ends, later(800)));
    assert_eq!(look(status.clone(), &ends, 800).rollout, status.rollout, "that would be another stall");
}

#[test]
fn longest_of_several_waits_sets_the_deadline() {
    let two = terminating(0, 1800).but(1, |c| c.down().with(|f| f.health.wait = wait(100, 300)));
    let status = rolling(&two);
    assert_eq!(stall_deadline(&status, &two, later(100)), Some(later(2400)));
    let overdue = two.but(1, |c| {
        c.with(|f| {
            f.grant.time = GrantTime::Over;
            f.grant.is_proven = false;
        })
    });
    assert_eq!(overdue.wait(later(100)), None, "one of them has had its time");
    let gone = moving(ChildFacts::down).with(|f| f.ending = wait(0, 1800));
    let status = rolling(&gone);
    assert_eq!(stall_deadline(&status, &gone, later(100)), Some(later(2400)), "a pod whose node is gone");
}

#[test]
fn new_nodes_and_first_creation_get_their_startup_time() {
    for stage in [Stage::CreatingEntrants, Stage::AwaitingEntrants, Stage::AwaitingPromotion] {
        let mut facts = super::sets::amid(Strategy::BlueGreen, stage);
        let new = facts.sets.get_mut("v2").unwrap();
        new.children[1] = node(1).granted("v2").seen().down().with(|f| f.health.wait = wait(0, 1800));
        let status = rolling(&facts);
        let mut status = NodeDeploymentStatus { active_set: "first".to_owned(), ..status };
        let rollout = status.rollout.as_mut().unwrap();
        (rollout.stage, rollout.entrant_set) = (stage, "v2".to_owned());
        assert_eq!(stall_deadline(&status, &facts, later(1)), Some(later(2400)), "{stage:?}");
        facts.sets.insert("older".into(), SetFacts { children: vec![node(0)], ..SetFacts::default() });
        assert_eq!(stall_deadline(&status, &facts, later(1)), Some(later(2400)), "{stage:?}");
    }
    let starts =
        fleet(2).never_completed().but(1, |c| c.never_ready().with(|f| f.health.wait = wait(0, 1800)));
    let status = look(NodeDeploymentStatus::default(), &starts, 0);
    assert!(!is_stalled(&status, &starts, later(1799)));
    let status = look(status, &starts, 1800);
    assert!(!is_stalled(&status, &starts, later(2399)) && is_stalled(&status, &starts, later(2400)));
}

#[test]
fn wait_is_bounded_when_the_clock_is_set_back() {
    let ends = terminating(0, 1800);
    let status = look(rolling(&ends), &ends, 900);
    let back = look(status, &ends, -3600);
    assert_eq!(look(back.clone(), &ends, -3599), back, "nothing is written");
    let down = moving(ChildFacts::down);
    let over = look(back, &down, -3000);
    assert_eq!(stall_deadline(&over, &down, later(-3000)), Some(later(-3000 + 600)));
}

#[test]
fn node_is_overdue_only_after_its_allowed_time() {
    let facts = |allowed: Option<i64>, given: Option<Wait>| {
        fleet(2).but(1, |c| {
            let problem =
                c.clone().down().health.problem.map(|p| Problem { allowed_until: allowed.map(later), ..p });
            c.down().with(|f| {
                f.health.problem = problem;
                f.health.wait = given;
            })
        })
    };
    let due = |facts: &FleetFacts| node_overdue_at(facts, now());
    assert_eq!(due(&facts(None, None)), Some(later(600)));
    assert_eq!(due(&facts(Some(1800), None)), Some(later(2400)));
    assert_eq!(due(&facts(Some(100), wait(100, 1000))), Some(later(1600)));
}
