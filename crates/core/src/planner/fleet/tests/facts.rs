//! The states of a node and of a fleet: in flight, disrupted, drifted; updated and converged.

use super::*;
use crate::planner::fleet::hooks;
use crate::planner::fleet::state::{Flight, Health, NodeState};
use serde_json::json;

type Case = (&'static str, ChildFacts, (bool, bool, bool));

#[test]
fn observed_state_marks_node_in_flight_disrupted_or_drifted() {
    let (in_flight, disrupted, drifted) = (true, true, true);
    let table: Vec<Case> = vec![
        ("it serves", node(0), (false, false, false)),
        (
            "status behind its generation",
            node(0).with(|f| f.controller.status_outdated = true),
            (in_flight, disrupted, false),
        ),
        ("granted, not seen", node(0).granted("v2"), (in_flight, disrupted, false)),
        ("granted and seen, serving the old", node(0).granted("v2").seen(), (in_flight, disrupted, false)),
        ("at the target, its plan active", node(0).rolling(), (in_flight, disrupted, false)),
        ("not ready at its grant", node(0).down(), (false, disrupted, false)),
        ("without a pod", node(0).without_pod(), (in_flight, disrupted, false)),
        ("failed", node(0).granted("v2").seen().failed(), (in_flight, disrupted, false)),
        ("terminating", node(0).terminating(), (false, disrupted, false)),
        ("sidecar unreachable", node(0).unreachable(), (false, disrupted, false)),
        (
            "ready, not yet for long enough",
            node(0).with(|f| f.pod.available = false),
            (false, disrupted, false),
        ),
        ("serves another template under a spent grant", node(0).running("v2"), (false, false, drifted)),
        (
            "the same, and behind",
            node(0).running("v2").with(|f| f.controller.status_outdated = true),
            (in_flight, disrupted, false),
        ),
        ("the same, and rolling", node(0).running("v2").rolling(), (in_flight, disrupted, false)),
        ("the same, and down", node(0).running("v2").down(), (in_flight, disrupted, false)),
        ("the same, and terminating", node(0).running("v2").terminating(), (false, disrupted, false)),
        ("drifted, sidecar unreachable", node(0).running("v2").unreachable(), (false, disrupted, drifted)),
        ("converged to v2", node(0).granted("v2").converged(), (false, false, false)),
    ];
    for (what, child, expected) in table {
        let found = (child.state().is_in_flight(), child.is_disrupted(), child.state().is_drifted());
        assert_eq!(found, expected, "{what}: (in flight, disrupted, drifted)");
    }
}

#[test]
fn node_is_in_exactly_one_state() {
    use Flight::{Arrived, Kept, Moving, Spent, Stuck};
    use Health::{Down, Serving, Starting};
    use NodeState::{AtRest, Drifted, InFlight, NeverStarted, Terminating};
    let outdated = |child: ChildFacts| child.with(|f| f.controller.status_outdated = true);
    let arrived = || node(0).granted("v2").seen().running("v2").down();
    let kept = || node(0).granted("v2").seen().with(|f| f.grant.id = Some("abort-5".into()));
    let held = || node(0).never_ready().with(|f| f.pod.hash = None).with_problem("InvalidSpec", "no");
    let mute = |child: ChildFacts| child.unreachable().with(|f| f.pod.ready = false);
    let table = vec![
        ("it serves", node(0), AtRest(Serving)),
        ("Ready, not for long enough", node(0).with(|f| f.pod.available = false), AtRest(Starting)),
        ("not Ready", node(0).down(), AtRest(Down)),
        ("sidecar unreachable", node(0).unreachable(), AtRest(Health::Unreachable { ready: true })),
        ("the same, not Ready", mute(node(0)), AtRest(Health::Unreachable { ready: false })),
        ("another template", node(0).running("v2"), Drifted(Serving)),
        ("another template, granted just now", node(0).granted("v2"), InFlight(Moving, Serving)),
        ("the same, observed", node(0).granted("v2").seen(), InFlight(Moving, Serving)),
        ("its status is behind", outdated(node(0)), InFlight(Spent, Serving)),
        ("a plan repairs it", node(0).rolling(), InFlight(Spent, Serving)),
        ("a plan repairs it, not Ready", node(0).down().rolling(), InFlight(Stuck, Down)),
        ("its status is behind, not Ready", outdated(node(0).down()), InFlight(Spent, Down)),
        ("the new pod starts", arrived().with_running_pod().rolling(), InFlight(Arrived, Down)),
        ("the new pod does not run yet", arrived().rolling(), InFlight(Moving, Down)),
        (
            "the new pod starts, status behind",
            outdated(arrived().with_running_pod().rolling()),
            InFlight(Moving, Down),
        ),
        ("an abort keeps its pod", kept(), InFlight(Kept, Serving)),
        ("an abort keeps its pod, and a plan is active", kept().rolling(), InFlight(Moving, Serving)),
        ("an invalid spec, never ran", held(), NeverStarted),
        ("an invalid spec, was Ready once", held().with(|f| f.pod.ever_ready = true), InFlight(Moving, Down)),
        ("an invalid spec, runs", held().with_running_pod(), InFlight(Moving, Down)),
        ("an invalid spec, ran", held().running("v2"), InFlight(Moving, Down)),
        ("an invalid spec, and a plan", held().rolling(), InFlight(Moving, Down)),
        ("down for another reason", held().with_problem("NotReady", "no"), InFlight(Moving, Down)),
        ("deleted while Ready", node(0).terminating(), Terminating { moving: true }),
        ("deleted while down", node(0).down().terminating(), Terminating { moving: false }),
        (
            "deleted while it runs",
            node(0).down().with_running_pod().terminating(),
            Terminating { moving: true },
        ),
        (
            "deleted while it moves",
            node(0).down().granted("v2").seen().terminating(),
            Terminating { moving: true },
        ),
        (
            "deleted, drifted and down",
            node(0).down().running("v2").terminating(),
            Terminating { moving: false },
        ),
        (
            "deleted, down, status behind",
            outdated(node(0).down()).terminating(),
            Terminating { moving: true },
        ),
        ("deleted, down, a plan", node(0).down().rolling().terminating(), Terminating { moving: false }),
    ];
    for (what, child, expected) in table {
        assert_eq!(child.state(), expected, "{what}");
    }
}

#[test]
fn missing_nodes_and_nodes_being_scaled_in_are_disrupted() {
    let table = [
        ("all serve", fleet(3), 0),
        ("one is missing", fleet(3).without(1), 1),
        ("a surplus node in flight", fleet(2).with_surplus(node(2).granted("v2")), 1),
        ("a surplus node that leaves", fleet(2).with_surplus(node(2).terminating()), 1),
        ("a surplus node that serves", fleet(2).with_surplus(node(2)), 0),
        ("a missing and a failed one", fleet(3).without(0).but(0, ChildFacts::failed), 2),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.disrupted(), expected, "{what}");
    }
}

#[test]
fn node_with_conflicting_name_is_not_missing() {
    let mut facts = fleet(3).without(1);
    facts.conflicts.push(super::super::Conflict {
        name: "db-1".into(),
        ordinal: 1,
        message: "taken".to_owned(),
    });
    assert_eq!((facts.missing(), facts.disrupted()), (vec![], 0));
    assert!(!facts.is_converged(&to("v1")));
}

#[test]
fn node_is_updated_only_when_its_pod_is_observed_at_target() {
    let held = |revision: &str| node(0).granted(revision);
    let table = [
        ("converged", held("v2").converged(), true),
        ("serving the old under the new grant", held("v2").seen(), false),
        ("at the target, not yet seen by its executor", held("v2").running("v2"), false),
        (
            "at the target's hash with another image",
            held("v2").converged().with(|f| f.pod.image = image("v1")),
            false,
        ),
        (
            "granted the target, its spec holds another",
            held("v2").converged().with(|f| f.spec_hash = Some("v1".into())),
            false,
        ),
        (
            "runs the target, granted another",
            held("v2").converged().with(|f| f.grant.hash = Some(hash("v1"))),
            false,
        ),
        ("at the target, not ready", held("v2").converged().down(), true),
    ];
    for (what, child, expected) in table {
        let facts = fleet(1).wanting("v2").but(0, |_| child.clone());
        assert_eq!(facts.is_updated(facts.child(0), &to("v2")), expected, "{what}");
    }
}

#[test]
fn rollout_has_not_converged_with_missing_or_disrupted_nodes() {
    let done = |ordinal| node(ordinal).granted("v2").converged();
    let all = fleet(2).wanting("v2").but(0, |_| done(0)).but(1, |_| done(1));
    let table = [
        ("all at the target", all.clone(), true),
        (
            "no node wanted",
            all.clone().with(|f| {
                f.spec.replicas = 0;
                f.children = vec![];
            }),
            false,
        ),
        ("one missing", all.clone().without(1), false),
        ("one serving the old", all.clone().but(1, |_| node(1)), false),
        ("one not ready", all.clone().but(1, ChildFacts::down), false),
        ("one in flight", all.clone().but(1, ChildFacts::rolling), false),
        ("one drifted", all.clone().but(1, |c| c.running("v3")), false),
        ("one with its sidecar unreachable", all.clone().but(1, ChildFacts::unreachable), false),
        ("one leaving", all.clone().but(1, ChildFacts::terminating), false),
        ("a surplus one still there", all.clone().with_surplus(done(2)), false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.is_converged(&to("v2")), expected, "{what}");
    }
}

#[test]
fn goal_is_the_requested_revision_until_rolled_back() {
    let facts = fleet(1).wanting("v2");
    let table = [
        ("nothing rejected", facts.clone(), ("v2", "v2")),
        ("aborted", facts.clone().rejecting("Aborted"), ("v2", "v1")),
        ("failed", facts.clone().rejecting("Failed"), ("v2", "v1")),
        ("rolled back", facts.clone().rejecting("RolledBack"), ("v1", "v1")),
        (
            "aborted before anything completed",
            facts.clone().never_completed().rejecting("Aborted"),
            ("v2", "v2"),
        ),
    ];
    for (what, facts, (goal, steady)) in table {
        assert_eq!((facts.goal().as_str(), facts.steady_revision().as_str()), (goal, steady), "{what}");
    }
}

#[test]
fn step_without_additional_nodes_is_not_a_stop() {
    let table = [
        (json!([1, "50%"]), vec![0, 1]),
        (json!([2, 2, 3]), vec![0, 2]),
        (json!([5, "10%"]), vec![0]),
        (json!([3, 1, 4]), vec![0, 2]),
        (json!(["50%", "100%"]), vec![0]),
    ];
    for (steps, stops) in table {
        let facts = fleet(10).with(|f| f.spec.steps = serde_json::from_value(steps.clone()).unwrap());
        assert_eq!(hooks::stops(&facts), stops, "{steps}");
    }
}
