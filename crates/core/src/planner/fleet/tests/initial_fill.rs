//! A fleet that is filled, for the first time or again after it was scaled to 0, stalls like a rollout.

use super::*;
use crate::api::conditions::{RECONCILING, ROLLOUT_IN_PROGRESS, STALLED, UP_TO_DATE, find};

/// A fleet of three that never completed. Its nodes were just created and pull their image.
fn created() -> FleetFacts {
    let pulling = |c: ChildFacts| c.never_ready().with(|f| f.pod.hash = None);
    let facts = fleet(3).never_completed();
    fleet(3).never_completed().with(|f| f.children = facts.children.into_iter().map(pulling).collect())
}

fn said(status: &NodeDeploymentStatus, type_: &str) -> String {
    let found = find(&status.conditions, type_).unwrap();
    format!("{}/{}: {}", found.status, found.reason, found.message)
}

#[test]
fn first_creation_stalls_despite_alternating_reasons() {
    let failing = |reason: &str, since| {
        created().but(1, |c| {
            let c = c.with_problem(reason, "no such image").with(|f| f.pod.failed = true);
            let problem = c.health.problem.clone().map(|p| Problem { since: later(since), ..p });
            c.with(|f| f.health.problem = problem)
        })
    };
    let mut status = look(NodeDeploymentStatus::default(), &created(), 0);
    // A kubelet's reasons alternate; each of them looks new.
    for seconds in 1..600 {
        let reason = if seconds % 2 == 0 { "ErrImagePull" } else { "ImagePullBackOff" };
        status = look(status, &failing(reason, seconds), seconds);
        assert_eq!(said(&status, STALLED), "False/Progressing: ", "{seconds}");
    }
    let stalled = look(status, &failing("ErrImagePull", 600), 600);
    let why = overdue_at(600, "db-1: ErrImagePull: no such image");
    assert_eq!(said(&stalled, STALLED), format!("True/NoProgress: {why}"));
    assert_eq!(said(&stalled, UP_TO_DATE), format!("False/Stalled: {why}"));
    assert_eq!(said(&stalled, RECONCILING), "False/Settled: ");
    assert_eq!(said(&stalled, ROLLOUT_IN_PROGRESS), "False/NotStarted: ");
    assert_eq!(stalled.rollout, None);
    let well = look(stalled, &fleet(3).never_completed(), 700);
    assert_eq!(said(&well, STALLED), "False/Progressing: ");
    assert_eq!((said(&well, UP_TO_DATE), well.initial_fill), ("True/Applied: ".to_owned(), None));
}

#[test]
fn first_creation_with_sequential_progress_does_not_stall() {
    let mut status = look(NodeDeploymentStatus::default(), &created(), 0);
    let mut facts = created();
    for ordinal in 0..2 {
        let seconds = 500 * (i64::try_from(ordinal).unwrap() + 1);
        facts = facts.but(ordinal, |_| node(i32::try_from(ordinal).unwrap()));
        status = look(status, &facts, seconds);
        assert_eq!(said(&status, STALLED), "False/Progressing: ", "{ordinal}");
    }
    // A node that went down and recovered is not progress.
    status = look(status, &facts.clone().but(0, ChildFacts::down), 1300);
    status = look(status, &facts, 1400);
    assert_eq!(said(&status, STALLED), "False/Progressing: ");
    status = look(status, &facts, 1600);
    let why = overdue_at(1600, "db-2: NotReady: it is not ready");
    assert_eq!(said(&status, STALLED), format!("True/NoProgress: {why}"));
}

#[test]
fn newly_ready_node_is_progress_of_a_first_creation() {
    let ready = created().but(0, |_| node(0).with(|f| f.pod.available = false));
    let updated = ready.clone().but(0, ChildFacts::down);
    let status = look(look(NodeDeploymentStatus::default(), &created(), 0), &updated, 300);
    let status = look(look(status, &ready, 500), &ready, 1099);
    assert_eq!(said(&status, STALLED), "False/Progressing: ");
    assert!(said(&look(status, &ready, 1100), STALLED).starts_with("True/NoProgress"));
}

#[test]
fn first_creation_stalls_when_nodes_are_never_created() {
    let none = new_fleet(2);
    let status = look(look(NodeDeploymentStatus::default(), &none, 0), &none, 600);
    let why = overdue_at(600, "db-0: Missing: the node does not exist yet");
    assert_eq!(said(&status, STALLED), format!("True/NoProgress: {why}"));
}

#[test]
fn first_creation_clock_stops_while_paused_and_resets_if_ahead() {
    let mut status = look(NodeDeploymentStatus::default(), &created().paused(), 0);
    status = look(status, &created().paused(), 5000);
    assert_eq!(said(&status, STALLED), "False/Progressing: ");
    status = look(status, &created(), 6000);
    assert_eq!(said(&look(status.clone(), &created(), 6599), STALLED), "False/Progressing: ");
    assert!(said(&look(status.clone(), &created(), 6600), STALLED).starts_with("True/NoProgress"));
    // The clock is set back by more than the deadline: the wait starts again.
    let back = look(status, &created(), 100);
    assert!(said(&look(back, &created(), 700), STALLED).starts_with("True/NoProgress"));
}

#[test]
fn first_creation_status_is_unchanged_without_progress() {
    let status = look(NodeDeploymentStatus::default(), &created(), 0);
    assert_eq!(look(status.clone(), &created(), 60), status);
    let done = look(status, &fleet(3).never_completed(), 60);
    assert_eq!(look(done.clone(), &fleet(3), 90).initial_fill, None);
}

#[test]
fn no_initial_fill_clock_during_a_rollout_or_at_rest() {
    for (what, facts, status) in [
        ("whole", fleet(2), at_rest(&fleet(2))),
        ("no node is wanted", new_fleet(0), NodeDeploymentStatus::default()),
        ("a rollout", created().wanting("v2"), {
            let facts = created().wanting("v2");
            rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged))
        }),
    ] {
        assert_eq!(look(status, &facts, 0).initial_fill, None, "{what}");
    }
}
