//! The ten counterexamples that a model found in the first draft of the grant rules. Each is replayed up to the step
//! that broke the rules; maxUnavailable is 1.

use super::super::create::creation_revision;
use super::super::wave::{Clause, may_grant, next_grants, pins};
use super::*;
use crate::api::{GrantedBy, RestartTime};

fn granted_names(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<String> {
    next_grants(facts, rollout_target).into_iter().map(|g| g.name.to_string()).collect()
}

#[test]
fn trace_1_outdated_status_does_not_complete_the_rollout() {
    // Node 0 was granted v2, then v1 again; its status still shows v1 and available.
    let facts = fleet(2).but(0, |c| c.granted("v2").granted("v1").running("v1"));
    assert!(!facts.is_converged(&to("v1")));
    assert!(
        facts.is_converged(&to("v1")) != facts.clone().but(0, ChildFacts::converged).is_converged(&to("v1"))
    );
}

#[test]
fn trace_2_node_not_observed_at_target_holds_the_wave() {
    // The template is v2; the pod's label still equals the old update revision: observed is v1.
    let facts = fleet(2).wanting("v2").but(0, |c| c.granted("v2").rolling());
    assert!(!facts.is_updated(facts.child(0), &to("v2")));
    assert_eq!(granted_names(&facts, &to("v2")), [""; 0]);
}

#[test]
fn trace_3_node_without_pod_waits_while_another_is_in_flight() {
    let facts = fleet(2)
        .wanting("v1")
        .but(0, |c| c.granted("v3").converged().without_pod())
        .but(1, |c| c.granted("v3").rolling().without_pod());
    assert_eq!(may_grant(&facts, 0, &to("v1")), None);
    assert_eq!(granted_names(&facts, &to("v1")), ["db-1"]);
}

#[test]
fn trace_4_broken_node_gets_the_fix_despite_a_full_wave() {
    let facts =
        fleet(2).but(0, |c| c.granted("v2").seen().without_pod().failed()).but(1, ChildFacts::without_pod);
    assert_eq!(granted_names(&facts, &to("v1")), ["db-0"]);
    let spent = facts.but(0, |c| c.with(|f| f.grant.spent_id = f.grant.id.clone()));
    assert_eq!(may_grant(&spent, 0, &to("v1")), Some(Clause::Failed));
}

#[test]
fn trace_5_node_at_the_target_is_granted_despite_a_full_wave() {
    let facts = fleet(2).but(0, |c| c.granted("v2").rolling()).but(1, ChildFacts::without_pod);
    assert_eq!(granted_names(&facts, &to("v1")), ["db-0"]);
    assert_eq!(may_grant(&facts, 0, &to("v1")), Some(Clause::RunsTarget));
}

#[test]
fn trace_6_in_flight_node_being_scaled_in_takes_room() {
    let facts = fleet(1).wanting("v2").with_surplus(node(1).granted("v2").rolling());
    assert_eq!(granted_names(&facts, &to("v2")), [""; 0]);
    let gone = fleet(1).wanting("v2");
    assert_eq!(granted_names(&gone, &to("v2")), ["db-0"]);
}

#[test]
fn trace_7_manually_edited_node_needs_a_grant_and_wave_room() {
    let edited = |c: ChildFacts| c.with(|f| f.pod.hash = Some("edited".into()));
    let facts = fleet(2).wanting("v2").but(0, edited).but(1, |c| c.granted("v2").rolling());
    assert!(facts.child(0).state().is_drifted());
    assert_eq!(granted_names(&facts, &to("v2")), [""; 0]);
    // Even for the target that it is granted now, it does not count as granted.
    let steady = fleet(2).but(0, edited);
    assert!(!steady.is_granted(steady.child(0), &to("v1")));
    assert_eq!(granted_names(&steady, &to("v1")), ["db-0"]);
}

#[test]
fn trace_8_node_with_an_active_plan_is_in_flight() {
    let facts = fleet(2).but(0, |c| c.granted("v2").granted("v1").rolling());
    assert!(facts.child(0).state().is_in_flight());
    assert!(!facts.is_converged(&to("v1")));
}

#[test]
fn trace_9_converged_node_of_older_operator_gets_new_template() {
    let mut facts = fleet(2);
    let other = Rendering { hash: "another template of v1".into(), image: image("v1") };
    facts.renderings.insert(("v1".into(), None), other);
    assert!(!facts.child(0).state().is_in_flight());
    assert_eq!(granted_names(&facts, &RolloutTarget::Own), ["db-1"]);
    // A node whose StatefulSet is lost cannot be recreated under the old grant: it is Failed, and needs no room.
    let lost = facts.but(0, ChildFacts::failed).but(1, |c| c.granted("v1").rolling());
    assert_eq!(granted_names(&lost, &RolloutTarget::Own).first().map(String::as_str), Some("db-1"));
    assert!(granted_names(&lost, &RolloutTarget::Own).contains(&"db-0".to_owned()));
}

#[test]
fn trace_10_lost_node_is_recreated_at_the_working_revision() {
    let facts = fleet(2).wanting("v2").but(0, |c| c.granted("v2").seen().failed()).without(1);
    assert_eq!(creation_revision(&facts, 1, Some(&to("v2"))), Some(&"v1".into()));
}

/// A bug that `tests/sim/model` found: the pod moved on while its status still described the previous one, so the abort
/// restored a hash that no longer ran; that was observed and restored in turn, forever.
#[test]
fn abort_withdraws_a_restart_not_yet_carried_out() {
    let restart: RestartTime = "2030-01-31T12:00:00Z".into();
    let told = |c: ChildFacts| c.with(|f| f.restarts.asked = Some(restart.clone()));
    let facts = fleet(2).rejecting("Aborted").but(0, told).but(1, |c| told(c.granted("v1-again").seen()));
    let given: Vec<_> = pins(&facts).into_iter().map(|g| (g.name, g.hash, g.restart)).collect();
    assert_eq!(given, [("db-1".into(), hash("v1"), None)]);
}

#[test]
fn abort_grants_the_running_revision_until_converged() {
    let given = |by: GrantedBy<'_>, running: &'static str, is_spent: bool| {
        let moves = move |c: ChildFacts| {
            let granted = c.granted("v1").granted("v2").running(running);
            let grant_id = Some(GrantId::of(by, 7));
            let spent_id = if is_spent { grant_id.clone() } else { granted.grant.spent_id.clone() };
            granted.with(|f| {
                f.grant.id = grant_id;
                f.grant.spent_id = spent_id;
                f.controller.status_outdated = false;
            })
        };
        let facts = fleet(2).wanting("v3").rejecting("Aborted").but(1, moves);
        pins(&facts).into_iter().map(|g| (g.name.to_string(), g.revision.to_string())).collect::<Vec<_>>()
    };
    let plan = "0123456789".into();
    for (by, running, is_spent, expected) in [
        (GrantedBy::Plan(&plan), "v1", false, Some("v1")),
        (GrantedBy::Plan(&plan), "v2", false, None),
        (GrantedBy::Plan(&plan), "v1", true, None),
        // Its pod was replaced before the abort's first grant was written, and stays.
        (GrantedBy::Abort, "v1", false, Some("v1")),
        (GrantedBy::Abort, "v2", false, None),
        (GrantedBy::Abort, "v1", true, None),
    ] {
        let expected: Vec<_> = expected.map(|v| ("db-1".to_owned(), v.to_owned())).into_iter().collect();
        assert_eq!(given(by, running, is_spent), expected, "{running} {is_spent}");
    }
}
