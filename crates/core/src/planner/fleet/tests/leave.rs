//! Which nodes leave, and what waits for that.

use super::super::leave::{Leave, in_waves, kept, together, waits_for};
use super::super::next_grants;
use super::*;
use crate::api::{RetiringSet, conditions};
use crate::planner::fleet::SetFacts;

impl ChildFacts {
    fn asked(self) -> Self {
        self.with(|f| f.leave.asked = true)
    }

    /// Its plan waits only for its deletion.
    fn leaving(self) -> Self {
        self.asked().with(|f| f.leave.awaits_removal = true)
    }
}

/// Five nodes, of which three are desired.
fn shrunk() -> FleetFacts {
    let mut facts = fleet(5);
    facts.spec.replicas = 3;
    for child in &mut facts.children {
        child.surplus = child.ordinal >= 3;
    }
    facts
}

fn asks(facts: &FleetFacts) -> Vec<NodeName> {
    in_waves(facts).ask
}

fn deletes(facts: &FleetFacts) -> Vec<NodeName> {
    in_waves(facts).delete
}

#[test]
fn highest_ordinal_is_requested_to_leave_when_the_wave_has_room() {
    let table: Vec<(&str, FleetFacts, &[&str])> = vec![
        ("nothing is in the way", shrunk(), &["db-4"]),
        ("room for two", shrunk().at_most(2), &["db-4", "db-3"]),
        ("more room than nodes", shrunk().at_most(9), &["db-4", "db-3"]),
        ("a node is down", shrunk().but(0, ChildFacts::down), &[]),
        ("a node is down, room for two", shrunk().at_most(2).but(0, ChildFacts::down), &["db-4"]),
        ("a node is missing", shrunk().without(0), &[]),
        ("a node is in flight", shrunk().but(1, ChildFacts::rolling), &[]),
        ("a node is not yet available", shrunk().but(1, |c| c.with(|f| f.pod.available = false)), &[]),
        ("a node is being deleted", shrunk().but(1, ChildFacts::terminating), &[]),
        ("another is leaving", shrunk().but(4, ChildFacts::leaving), &[]),
        ("another was asked and has not answered", shrunk().but(4, ChildFacts::asked), &[]),
        ("the one before is gone", shrunk().without(4), &["db-3"]),
        ("the pod of the one before is not", pod_is_left(shrunk().without(4)), &[]),
        ("the fleet is paused", shrunk().paused(), &[]),
        ("nobody is wanted", scaled_to_zero(), &["db-4"]),
        ("one that is down leaves at once", shrunk().but(3, ChildFacts::down), &["db-3"]),
        (
            "however many are down",
            shrunk().but(3, ChildFacts::failed).but(4, ChildFacts::down).but(0, ChildFacts::down),
            &["db-4", "db-3"],
        ),
        (
            "one after another if their main containers run",
            shrunk()
                .but(3, ChildFacts::half_running)
                .but(4, ChildFacts::half_running)
                .but(0, ChildFacts::half_running),
            &["db-4"],
        ),
        (
            "not while another that runs is asked",
            shrunk().but(3, ChildFacts::half_running).but(4, |c| c.half_running().asked()),
            &[],
        ),
        (
            "not while another that runs is moving",
            shrunk().but(4, ChildFacts::half_running).but(0, |c| c.half_running().granted("v2")),
            &[],
        ),
        (
            "two that move themselves take their own room",
            shrunk().at_most(2).but(3, |c| c.half_running().rolling()).but(4, |c| c.half_running().rolling()),
            &["db-4", "db-3"],
        ),
        (
            "one after another if they move themselves",
            shrunk().but(3, |c| c.half_running().rolling()).but(4, |c| c.half_running().rolling()),
            &["db-4"],
        ),
        (
            "who is down takes no room that is left",
            shrunk().at_most(2).but(3, ChildFacts::down),
            &["db-3", "db-4"],
        ),
        ("one that may well serve takes its own room", shrunk().but(3, ChildFacts::unreachable), &["db-3"]),
        (
            "several that may well serve leave one after another",
            shrunk().but(3, ChildFacts::unreachable).but(4, ChildFacts::unreachable),
            &["db-4"],
        ),
        ("and no other's", shrunk().but(3, ChildFacts::unreachable).but(0, ChildFacts::down), &[]),
        (
            "what is being deleted is not asked",
            shrunk().at_most(2).but(4, ChildFacts::terminating),
            &["db-3"],
        ),
        (
            "what cannot be read is not asked",
            shrunk().but(4, |c| c.with(|f| f.controller.unreadable = true)),
            &["db-3"],
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(asks(&facts), expected, "{what}");
    }
}

fn pod_is_left(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.shutting_down = vec!["db-4-0".to_owned()])
}

fn scaled_to_zero() -> FleetFacts {
    let mut facts = fleet(5);
    facts.spec.replicas = 0;
    facts.children.iter_mut().for_each(|c| c.surplus = true);
    facts
}

#[test]
fn leaving_node_is_deleted_once_ready_and_the_wave_has_room() {
    let asked = || shrunk().but(4, ChildFacts::leaving);
    let both = || shrunk().at_most(2).but(3, ChildFacts::leaving).but(4, ChildFacts::leaving);
    let table: Vec<(&str, FleetFacts, &[&str])> = vec![
        ("it was not asked", shrunk(), &[]),
        ("it has not answered", shrunk().but(4, ChildFacts::asked), &[]),
        ("it waits for that", asked(), &["db-4"]),
        ("another went down meanwhile", asked().but(0, ChildFacts::down), &[]),
        ("another is missing by now", asked().without(1), &[]),
        ("the fleet is paused", asked().paused(), &[]),
        ("two, and room for both", both(), &["db-4", "db-3"]),
        (
            "its main container runs, and others are down",
            asked().but(4, ChildFacts::half_running).but(0, ChildFacts::half_running),
            &["db-4"],
        ),
        (
            "its main container runs, and another one is moving",
            asked().but(4, ChildFacts::half_running).but(0, |c| c.half_running().granted("v2")),
            &[],
        ),
        ("two, and another went down", both().but(0, ChildFacts::down), &["db-4"]),
        ("it went down itself", asked().but(4, ChildFacts::down).but(0, ChildFacts::down), &["db-4"]),
        (
            "it is down and cannot make a plan",
            shrunk().but(4, |c| c.asked().down()).but(0, ChildFacts::down),
            &["db-4"],
        ),
        (
            "it is down and has not answered",
            shrunk().but(4, |c| c.asked().down().with(|f| f.controller.status_outdated = true)),
            &[],
        ),
        (
            "it is down and its plan to leave is not over",
            shrunk().but(4, |c| c.asked().down().with(|f| f.leave.by_plan = true)),
            &[],
        ),
        (
            "it is down, and its plan waits for that: there is no wave for it",
            shrunk().but(4, |c| c.leaving().down().with(|f| f.leave.by_plan = true)).but(0, ChildFacts::down),
            &["db-4"],
        ),
        (
            "its spec cannot be read",
            shrunk().but(4, |c| c.with(|f| f.controller.unreadable = true)),
            &["db-4"],
        ),
        (
            "its spec cannot be read, and another is down",
            shrunk().but(4, |c| c.with(|f| f.controller.unreadable = true)).but(0, ChildFacts::down),
            &[],
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(deletes(&facts), expected, "{what}");
    }
}

#[test]
fn leaving_node_is_disrupted_and_gets_no_grant() {
    let facts = shrunk().wanting("v2").but(4, ChildFacts::leaving);
    assert_eq!(facts.disrupted(), 1);
    assert!(next_grants(&facts, &to("v2")).is_empty(), "the wave is full");
    let back = fleet(5).wanting("v2").at_most(5).but(4, ChildFacts::leaving);
    let granted: Vec<NodeName> = next_grants(&back, &to("v2")).into_iter().map(|g| g.name).collect();
    assert_eq!(granted, ["db-3", "db-2", "db-1", "db-0"], "it is kept first");
    assert!(!back.is_converged(&to("v1")));
}

#[test]
fn nodes_out_of_service_leave_together() {
    let set = [node(0).down(), node(1), node(2).leaving(), node(3).terminating()];
    let expected = Leave { ask: vec!["db-1".into(), "db-0".into()], delete: vec!["db-2".into()] };
    assert_eq!(together(set.iter()), expected);
}

#[test]
fn node_desired_again_is_kept() {
    let back = fleet(5).but(4, ChildFacts::leaving).but(3, |c| c.leaving().terminating());
    assert_eq!(kept(&back, now()), ["db-4"], "what is being deleted is lost");
    assert_eq!(kept(&back.paused(), now()), ["db-4"]);
    assert_eq!(kept(&shrunk().but(4, ChildFacts::leaving), now()), Vec::<NodeName>::new());
    let retiring = |since| RetiringSet {
        set: "a".to_owned(),
        hash: String::new(),
        build_id: String::new(),
        since,
        unpromoted: false,
        served: false,
        halt_height: 0,
    };
    let with_set = |retiring| {
        let set = SetFacts { children: vec![node(0).leaving()], retiring, ..SetFacts::default() };
        fleet(1).with(|f| {
            f.sets = [("a".into(), set)].into();
            f.spec.retire_delay_seconds = 30;
        })
    };
    let taking_leave = |mut facts: FleetFacts| {
        let set = facts.sets.values_mut().next().unwrap();
        set.children[0].leave.began_hook = true;
        facts
    };
    assert_eq!(kept(&with_set(None), now()), ["db-0"], "it is to serve");
    assert_eq!(kept(&with_set(Some(retiring(now()))), now()), ["db-0"], "its time has not come");
    assert_eq!(kept(&with_set(Some(retiring(now()))), later(30)), Vec::<NodeName>::new());
    let ahead = Some(retiring(later(3600)));
    assert_eq!(kept(&with_set(ahead), now()), Vec::<NodeName>::new(), "the clock was set back");
    let again = taking_leave(with_set(Some(retiring(now()))));
    assert_eq!(kept(&again, now()), Vec::<NodeName>::new(), "the clock was set back by less than the delay");
    assert_eq!(kept(&taking_leave(with_set(None)), now()), ["db-0"], "it is to serve all the same");
    let begun = |at, mut facts: FleetFacts| {
        facts.sets.values_mut().next().unwrap().children[0].leave.since = Some(at);
        facts
    };
    let since = || with_set(Some(retiring(now())));
    assert_eq!(
        kept(&begun(later(30), since()), later(27)),
        Vec::<NodeName>::new(),
        "it began when its time had come"
    );
    assert_eq!(kept(&begun(later(20), since()), later(27)), ["db-0"], "the delay was made longer");
}

#[test]
fn pending_removals_are_reported_by_node_name() {
    let table: Vec<(&str, FleetFacts, Option<&str>)> = vec![
        ("nobody leaves", fleet(3), None),
        (
            "there is no room",
            shrunk().but(0, ChildFacts::down),
            Some(
                "waiting for the wave before db-4, db-3 can be removed: 1 of at most 1 nodes are disrupted (db-0)",
            ),
        ),
        (
            "one leaves, another has to wait",
            shrunk().but(4, ChildFacts::leaving),
            Some(
                "waiting for the wave before db-3 can be removed: 1 of at most 1 nodes are disrupted (db-4)",
            ),
        ),
        ("both may", shrunk().at_most(2), Some("waiting for db-4, db-3 to be removed")),
        (
            "one is left",
            shrunk().without(4).but(3, ChildFacts::leaving),
            Some("waiting for db-3 to be removed"),
        ),
        (
            "it was asked, and another went down",
            shrunk().without(4).but(3, ChildFacts::leaving).but(0, ChildFacts::down),
            Some(
                "waiting for the wave before db-3 can be removed: 1 of at most 1 nodes are disrupted (db-0)",
            ),
        ),
        (
            "a pod shuts down",
            pod_is_left(shrunk().without(4)),
            Some(
                "waiting for the wave before db-3 can be removed: 1 of at most 1 nodes are disrupted (db-4-0)",
            ),
        ),
        (
            "one is being deleted",
            shrunk().but(4, ChildFacts::terminating).without(3),
            Some("waiting for the deletion of db-4 to complete"),
        ),
        (
            "both are",
            shrunk().but(3, ChildFacts::terminating).but(4, ChildFacts::terminating),
            Some("waiting for the deletion of db-4, db-3 to complete"),
        ),
        (
            "one is being deleted, another may leave",
            shrunk().at_most(2).but(4, ChildFacts::terminating),
            Some("waiting for db-3 to be removed; waiting for the deletion of db-4 to complete"),
        ),
        (
            "it is paused",
            shrunk().paused(),
            Some("waiting for the fleet to be resumed before db-4, db-3 can be removed: spec.paused is true"),
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(waits_for(&facts).as_deref(), expected, "{what}");
    }
}

#[test]
fn wait_for_readiness_is_reported_without_removals() {
    let wide = fleet(5).but(0, ChildFacts::down);
    let status = look(at_rest(&wide), &wide, 0);
    let reconciling = conditions::find(&status.conditions, conditions::RECONCILING).unwrap();
    assert_eq!(reconciling.status, "True");
    assert_eq!(reconciling.message, "waiting: 1 of 5 nodes are not ready");
    let status = look(at_rest(&fleet(5)), &fleet(5), 0);
    let settled = conditions::find(&status.conditions, conditions::RECONCILING).unwrap();
    assert_eq!((settled.status.as_str(), settled.message.as_str()), ("False", ""));
}

#[test]
fn wait_is_reported_in_rollout_or_condition_but_not_both() {
    let held = shrunk().but(0, ChildFacts::down);
    let status = look(at_rest(&held), &held, 0);
    let reconciling = conditions::find(&status.conditions, conditions::RECONCILING).unwrap();
    assert_eq!((reconciling.status.as_str(), reconciling.reason.as_str()), ("True", "Progressing"));
    assert!(reconciling.message.contains("before db-4, db-3 can be removed"), "{}", reconciling.message);
    let facts = held.wanting("v2");
    let rolling = rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged));
    let status = look(rolling, &facts, 0);
    let message = status.rollout.unwrap().message;
    assert!(message.contains("before db-4, db-3 can be removed"), "{message}");
    let reconciling = conditions::find(&status.conditions, conditions::RECONCILING).unwrap();
    assert_eq!(reconciling.message, "", "it is said once");
}
