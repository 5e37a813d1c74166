//! A target is rejected for a stall only if a node that was given it does not become available with it.

use super::super::{FleetDecision, GrantTime, Strategy, decide};
use super::*;
use crate::api::{OnStall, Stage};

/// True if a stalled rollout to v2 is rolled back.
fn is_rejected(facts: FleetFacts) -> bool {
    let facts = facts.with(|f| f.spec.on_stall = OnStall::Rollback);
    let decided = decide(&facts, Some(&plan_to("v2")), &to("v2"), true);
    assert!(
        matches!(
            decided,
            FleetDecision::RollBack(_) | FleetDecision::CancelAfterFailure | FleetDecision::Keep
        ),
        "{decided:?}"
    );
    decided != FleetDecision::Keep
}

fn given(child: ChildFacts) -> ChildFacts {
    child.granted("v2").seen()
}

/// Its new pod runs, and is not ready.
fn unready(child: ChildFacts) -> ChildFacts {
    starting(child).with(|f| f.pod.runs = true)
}

/// Its new pod does not run yet.
fn starting(child: ChildFacts) -> ChildFacts {
    with_pod(given(child).running("v2").down())
}

fn with_pod(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.grant.time = GrantTime::Over)
}

#[test]
fn target_is_blamed_for_failures_on_granted_nodes() {
    let base = || fleet(3).wanting("v2");
    let healthy = || base().but(2, |c| given(c).converged());
    let unschedulable = |c: ChildFacts| c.failed().with_problem("Unschedulable", "no machine");
    let table: Vec<(&str, FleetFacts, bool)> = vec![
        ("it cannot run", base().but(2, |c| given(c).failed()), true),
        ("its pod is not ready", base().but(2, |c| with_pod(given(c).down())), true),
        ("its pod is never scheduled", base().but(2, |c| unschedulable(with_pod(given(c)))), true),
        (
            "it served, and crashes",
            healthy().but(2, |c| c.failed().with_problem("CrashLoopBackOff", "")),
            false,
        ),
        (
            "it was Ready, but not for minReadySeconds",
            healthy().but(2, |c| with_pod(c.down()).with(|f| f.grant.is_proven = false)),
            true,
        ),
        (
            "its pod has not had its time yet",
            base().but(2, |c| given(c).failed().with(|f| f.grant.time = GrantTime::Until(later(1)))),
            false,
        ),
        ("nobody has it yet, and another node is down", base().but(0, ChildFacts::down), false),
        ("it is healthy, and a machine dies under another node", healthy().but(0, ChildFacts::failed), false),
        ("the old pod does not end", base().but(2, |c| given(c).down()), false),
        ("it served, and its machine dies", healthy().but(2, |c| with_pod(c.down())), false),
        ("it served, and finds no other machine", healthy().but(2, unschedulable), false),
        ("its controller has not seen it", base().but(2, |c| c.granted("v2").failed()), false),
        ("a node that has it leaves", base().with_surplus(given(node(3)).failed()), false),
        ("a node is stuck at another target", base().but(2, |c| c.granted("v3").seen().failed()), false),
        ("a node is missing", base().without(0), false),
        (
            "a node that the partition holds back is ill",
            base().held_below_ordinal(1).but(0, |c| c.failed().with_problem("CrashLoopBackOff", "")),
            false,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(is_rejected(facts), expected, "{what}");
    }
}

#[test]
fn target_is_blamed_for_new_nodes_but_not_for_old_ones() {
    let amid = |strategy| super::sets::amid(strategy, Stage::AwaitingEntrants);
    let new = |strategy, change: fn(ChildFacts) -> ChildFacts| {
        let mut facts = amid(strategy);
        let child = &mut facts.sets.get_mut("v2").unwrap().children[1];
        *child = change(child.clone());
        facts
    };
    let behind = |c| with_pod(c).with(|f| f.sidecar = Some(super::super::SidecarFacts::default()));
    let awaited = |change| {
        let mut facts = new(Strategy::BlueGreen, change);
        super::sets::set_of(&mut facts).stage = Stage::AwaitingPromotion;
        facts
    };
    let (blue_green, hard_fork) = (Strategy::BlueGreen, Strategy::HardFork);
    let table: Vec<(&str, FleetFacts, bool)> = vec![
        ("a new node cannot run", new(blue_green, |c| given(c).failed()), true),
        ("a new node is not ready", new(blue_green, unready), true),
        ("a new node does not catch up", new(blue_green, behind), true),
        ("a new node falls behind while a person is waited for", awaited(behind), false),
        ("a new node served, and its machine dies", new(blue_green, ChildFacts::down), false),
        ("a machine dies under an old node", amid(blue_green).but(0, ChildFacts::failed), false),
        ("a new node does not run", new(hard_fork, starting), true),
        ("the new nodes run, and an old one says no height", new(hard_fork, unready), false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(is_rejected(facts), expected, "{what}");
    }
}
