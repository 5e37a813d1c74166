//! The messages in a fleet's status, and rare cases of decisions.

use super::super::{decide, next_grants};
use super::*;
use crate::api::conditions::{STALLED, UP_TO_DATE, find};
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{PodTemplateHash, RestartTime, RolloutHash};

fn to_v2() -> Start {
    start(to("v2"), "v2", Cause::TemplateChanged)
}

fn message(status: &NodeDeploymentStatus) -> String {
    status.rollout.as_ref().unwrap().message.clone()
}

/// The status of a rollout to v2 whose plan waits for something.
fn waiting(facts: &FleetFacts) -> NodeDeploymentStatus {
    let mut status = rolling_out(facts, &to_v2());
    let mut plan = plan_to("v2");
    plan.tasks[0].message = "waiting for the world".to_owned();
    status.plan = Some(crate::api::RawPlan::of(&plan));
    status
}

#[test]
fn rollout_wait_reports_pause_then_failed_node_then_task() {
    let said = |facts: FleetFacts| message(&look(waiting(&facts), &facts, 5));
    let two = || fleet(2).wanting("v2");
    let failed = || two().but(1, ChildFacts::failed);
    assert_eq!(said(two()), "waiting for the world");
    assert_eq!(said(two().but(1, ChildFacts::down)), "waiting for the world");
    assert_eq!(said(failed()), "waiting for db-1: ImagePullBackOff: no such image");
    let paused = "waiting for the fleet to be resumed: spec.paused is true";
    assert_eq!(said(two().paused()), paused);
    assert_eq!(said(failed().paused()), paused);
    let all = two().with(|f| f.children = two().children.into_iter().map(ChildFacts::failed).collect());
    assert_eq!(said(all), "waiting for db-0: ImagePullBackOff: no such image");
    // A restart is a rollout of its own, unless a rollout that creates a set is active.
    let restart = two().with(|f| f.requests.restart = Some("2030-01-01T00:00:00Z".into()));
    assert_eq!(said(restart), "waiting for the world");
}

#[test]
fn rejected_target_reports_its_cause() {
    let said = |outcome: &str, message: &str| {
        let mut facts = fleet(2).wanting("v2").rejecting(outcome);
        facts.record.rejected.as_mut().unwrap().message = message.to_owned();
        let status = look(at_rest(&facts), &facts, 0);
        [UP_TO_DATE, STALLED].map(|type_| find(&status.conditions, type_).unwrap().message.clone())
    };
    let [up, stalled] = said("RolledBack", "no progress: db-1: NotReady: it sleeps");
    assert_eq!(
        up,
        "the rollout of v2 was rolled back: no progress: db-1: NotReady: it sleeps; change the template, or annotate \
         windlass.dev/retry=rejected-plan"
    );
    assert_eq!(
        stalled,
        "plan rejected-plan ended: no progress: db-1: NotReady: it sleeps; Windlass does not retry the target"
    );
    let [up, stalled] = said("Aborted", "");
    assert_eq!(
        up,
        "the rollout of v2 was aborted; change the template, or annotate windlass.dev/retry=rejected-plan"
    );
    assert_eq!(stalled, "plan rejected-plan ended; Windlass does not retry the target");
}

#[test]
fn node_not_yet_available_is_reported_as_such() {
    let said = |change: &dyn Fn(ChildFacts) -> ChildFacts| {
        let facts = fleet(2).wanting("v2").but(1, change);
        let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
        let list = status.rollout.unwrap().unconverged;
        let node = list.into_iter().find(|u| u.name == "db-1").unwrap();
        assert!(node.message.len() <= MAX_PROBLEM_BYTES);
        node.message
    };
    let fresh = |c: ChildFacts| c.granted("v2").converged().with(|f| f.pod.available = false);
    let fresh = |c: ChildFacts| fresh(c).with(|f| f.pod.available = false);
    assert_eq!(said(&fresh), "Ready, but not yet for minReadySeconds");
    let moves = "updating to the granted pod template";
    assert_eq!(said(&|c| c.granted("v2")), moves, "Ready at what it ran");
    assert_eq!(said(&|c| c.granted("v2").with(|f| f.pod.available = false)), moves);
    let unready = |c: ChildFacts| {
        fresh(c).with(|f| {
            f.pod.ready = false;
            f.pod.available = false;
            f.health.problem = None;
        })
    };
    assert_eq!(said(&unready), moves, "not Ready, and nobody said why");
}

#[test]
fn node_waiting_for_the_wave_reports_its_occupancy() {
    let said = |facts: FleetFacts| {
        let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
        let list = status.rollout.unwrap().unconverged;
        list.into_iter().find(|u| u.reason == "WaitingForWave").unwrap().message
    };
    let rolls = |c: ChildFacts| c.granted("v2").rolling();
    let facts = || fleet(3).wanting("v2").at_most(1).but(2, rolls);
    assert_eq!(
        said(facts()),
        "1 of at most 1 nodes are disrupted; the node gets its grant when the wave has room"
    );
    assert_eq!(
        said(facts().paused()),
        "the fleet is paused; the node gets its grant once spec.paused is false"
    );
}

#[test]
fn grants_of_one_reconcile_fill_the_wave_exactly() {
    let granted = |facts: &FleetFacts| {
        next_grants(facts, &to("v2")).into_iter().map(|grant| grant.name).collect::<Vec<_>>()
    };
    for most in 1..=4 {
        let facts = fleet(5).wanting("v2").at_most(most);
        let expected: Vec<NodeName> = (0..most).map(|n| format!("db-{}", 4 - n).into()).collect();
        assert_eq!(granted(&facts), expected);
        // Nodes that are down take no more than the available room either.
        let down = facts.with(|f| f.children = f.children.iter().cloned().map(ChildFacts::down).collect());
        assert_eq!(granted(&down), expected);
    }
    // A node in flight may be granted again, and takes no further room for that.
    let mixed =
        fleet(4).wanting("v2").at_most(2).but(3, |c| c.granted("v3").rolling()).but(2, ChildFacts::down);
    assert_eq!(granted(&mixed), ["db-3", "db-2"]);
    assert_eq!(granted(&mixed.at_most(1)), ["db-3"]);
}

#[test]
fn missing_node_uses_last_completed_if_revision_is_not_stored() {
    use super::super::create::creation_revision;
    let unknown = fleet(3).wanting("v9").without(2);
    assert_eq!(creation_revision(&unknown, 2, None), Some(&"v1".into()));
    assert_eq!(creation_revision(&unknown, 2, Some(&to("v9"))), Some(&"v1".into()));
    // Before the first completion there is no other revision.
    assert_eq!(creation_revision(&unknown.clone().never_completed(), 2, Some(&to("v9"))), Some(&"v9".into()));
    assert_eq!(creation_revision(&fleet(3).without(2), 2, None), Some(&"v1".into()));
    let filling = fleet(3).wanting("v9").without(2).with(|f| f.record.scaled_to_zero = true);
    assert_eq!(
        creation_revision(&filling, 2, Some(&to("v9"))),
        Some(&"v1".into()),
        "not even where it fills from nothing"
    );
}

#[test]
fn undelivered_restart_is_distinguished_from_operator_drift() {
    let restarted = "2030-01-01T00:00:00Z";
    let with = |restart: &str, granted: &str| {
        let mut facts = fleet(1).with(|f| f.record.restarted_at = RestartTime::recorded(restarted));
        let at = Rendering { hash: "v1 restarted".into(), image: image("v1") };
        facts.renderings.insert(("v1".into(), RestartTime::recorded(restarted)), at);
        let (restart, granted) = (RestartTime::recorded(restart), PodTemplateHash::recorded(granted));
        facts.children[0] = facts.children[0].clone().with(|f| {
            f.restarts.asked = restart;
            f.pod.hash = granted.clone();
            f.grant.hash = granted;
        });
        match decide(&facts, None, &RolloutTarget::Own, false) {
            super::super::FleetDecision::Start(start) => Some(start.cause),
            _ => None,
        }
    };
    assert_eq!(with(restarted, "v1 restarted"), None, "it is where it is to be");
    assert_eq!(with("", "v1 restarted"), Some(Cause::RestartRequested), "its restart was taken away");
    assert_eq!(with(restarted, "another template"), Some(Cause::OperatorDrift), "of this Windlass");
    assert_eq!(with("", "another template"), Some(Cause::OperatorDrift));
}

#[test]
fn only_new_or_refilled_fleet_completes_without_a_rollout() {
    let done = |c: ChildFacts| c.granted("v2").converged();
    let moved = || fleet(2).wanting("v2").but(0, done).but(1, done);
    let last = |facts: &FleetFacts, status| look(status, facts, 0).last_completed_rollout_hash;
    assert_eq!(last(&moved(), at_rest(&moved())), "v1", "nodes that a hand moved complete nothing");
    let filled = moved().with(|f| f.record.scaled_to_zero = true);
    assert_eq!(last(&filled, at_rest(&filled)), "v2");
    assert_eq!(last(&filled, rolling_out(&filled, &to_v2())), "v1", "its rollout does, when its plan ends");
}

#[test]
fn unknown_facts_do_not_overwrite_the_status() {
    let set = |facts: &FleetFacts, before: &str| {
        let status = NodeDeploymentStatus { active_set: before.to_owned(), ..at_rest(facts) };
        let status = look(status, facts, 0);
        (status.active_set, status.selector)
    };
    let undecided = fleet(2).with(|f| f.findings.undecided = Some("which?".to_owned()));
    assert_eq!(set(&undecided, ""), (String::new(), String::new()));
    let other = fleet(2).with(|f| f.set = "v2".into());
    assert_eq!(set(&other, "").0, "v2");
    let (kept, selector) = set(&other, "first");
    assert_eq!(
        (kept.as_str(), selector.as_str()),
        ("first", "windlass.dev/deployment=db,windlass.dev/set=first")
    );
}

#[test]
fn node_is_updated_when_it_holds_and_runs_the_desired_revision() {
    let updated = |change: &dyn Fn(ChildFacts) -> ChildFacts| {
        let facts = fleet(2).but(1, change);
        look(at_rest(&facts), &facts, 0).updated_replicas
    };
    assert_eq!(updated(&|c| c), 2);
    assert_eq!(updated(&|c| c.running("v2")), 1, "it holds it, and runs another");
    assert_eq!(updated(&|c| c.with(|f| f.spec_hash = Some("v2".into()))), 1, "it runs it, and holds another");
}

#[test]
fn lost_revision_is_reported_if_others_are_known() {
    let said = |last: &str, known: &[&str]| {
        let mut facts = fleet(2);
        facts.renderings.retain(|key, _| known.contains(&key.0.as_str()));
        facts.record.last_completed = RolloutHash::recorded(last);
        let status = look(at_rest(&facts), &facts, 0);
        find(&status.conditions, UP_TO_DATE).unwrap().message.contains("does not exist or cannot be read")
    };
    assert!(!said("v1", &["v1", "v2"]));
    assert!(said("v1", &["v2"]));
    assert!(!said("v1", &[]), "nothing was read yet");
    assert!(!said("", &["v2"]), "nothing completed yet");
}

#[test]
fn abort_without_matching_plan_is_ignored() {
    for stage in [crate::api::Stage::CreatingEntrants, crate::api::Stage::AwaitingPromotion] {
        for (abort, stops) in [("", false), ("another", false), (plan_to("v2").id.as_str(), true)] {
            let facts = super::sets::amid(Strategy::BlueGreen, stage)
                .with(|f| f.requests.abort = PlanId::recorded(abort));
            let decided = decide(&facts, Some(&plan_to("v2")), &to("v2"), false);
            assert_eq!(decided == super::super::FleetDecision::Abort, stops, "{abort:?}");
        }
    }
}

#[test]
fn build_id_combines_image_tag_and_hash_prefix() {
    use super::super::status::{generated_build_id, short};
    assert_eq!(short("v1:0123456789"), "01234");
    assert_eq!(short("0123456789"), "01234");
    assert_eq!(short("v1:01"), "01");
    let id = |image: &str| generated_build_id(image, "v1:0123456789");
    assert_eq!(id("db:v2"), "v2-01234");
    assert_eq!(id("db"), "latest-01234");
    assert_eq!(id("registry:5000/team/db:v2@sha256:abc"), "v2-01234");
    assert_eq!(id("registry:5000/team/db"), "latest-01234");
    assert_eq!(id(&format!("db:{}", "x".repeat(60))), format!("{}-01234", "x".repeat(50)));
}

#[test]
fn unready_fleet_reports_the_number_of_unready_nodes() {
    let ready = |facts: &FleetFacts| {
        let status = look(at_rest(facts), facts, 0);
        find(&status.conditions, "Ready").unwrap().message.clone()
    };
    let mut facts = fleet(9).but(0, ChildFacts::down).but(1, ChildFacts::terminating).without(3).without(4);
    assert_eq!(ready(&facts), "4 of 9 nodes are not ready");
    for ordinal in [3, 4] {
        let (name, message) = (format!("db-{ordinal}").into(), "taken".to_owned());
        facts.conflicts.push(super::super::Conflict { name, ordinal, message });
    }
    assert_eq!(ready(&facts), "4 of 9 nodes are not ready");
    assert_eq!(ready(&facts.without(5)), "5 of 9 nodes are not ready");
}

#[test]
fn fleet_without_nodes_is_not_reconciling() {
    let busy = |facts: &FleetFacts| {
        let status = look(at_rest(facts), facts, 0);
        find(&status.conditions, "Reconciling").unwrap().status.clone()
    };
    assert_eq!(busy(&new_fleet(0)), "False");
    assert_eq!(busy(&new_fleet(2)), "True");
    assert_eq!(busy(&fleet(2)), "False");
}

#[test]
fn partition_holds_a_rollout_only_if_it_blocks_nodes() {
    use super::super::progress::is_held_by_partition;
    let at_v2 = |c: ChildFacts| c.granted("v2").converged();
    let done = fleet(2).wanting("v2").but(0, at_v2).but(1, at_v2);
    assert!(!is_held_by_partition(&done, &to("v2")), "nothing is left");
    let held = fleet(2).wanting("v2").held_below_ordinal(1).but(1, at_v2);
    assert!(is_held_by_partition(&held, &to("v2")));
    let below = [ChildFacts::down, ChildFacts::failed];
    assert!(
        below.iter().all(|ill| is_held_by_partition(&held.clone().but(0, ill), &to("v2"))),
        "it is not its to update"
    );
    assert!(is_held_by_partition(&held.clone().without(0), &to("v2")));
    assert!(!is_held_by_partition(&held.clone().but(1, ChildFacts::down), &to("v2")));
    assert!(!is_held_by_partition(&held.clone().without(1), &to("v2")));
    assert!(!is_held_by_partition(&fleet(2).held_below_ordinal(1), &to("v1")), "it goes to where they are");
    let other_id = held.clone().with(|f| f.spec.build_id = Some("one".into()));
    assert_eq!((held.held_below(), other_id.held_below(), held.never_completed().held_below()), (1, 0, 0));
}

#[test]
fn deleted_node_keeps_its_unavailable_since_time() {
    let since = |facts: &FleetFacts, status: &NodeDeploymentStatus, name: &str| {
        let list = look(status.clone(), facts, 60).rollout.unwrap().unconverged;
        list.into_iter().find(|u| u.name == name).unwrap().since
    };
    let facts = fleet(3).wanting("v2").but(0, ChildFacts::down).without(2);
    let before = look(rolling_out(&facts, &to_v2()), &facts, 0);
    assert_eq!(since(&facts, &before, "db-2"), now());
    let gone = facts.without(0);
    assert_eq!((since(&gone, &before, "db-2"), since(&gone, &before, "db-0")), (now(), now()));
    // A node that served while it waited for its turn did not become unavailable before it was gone.
    let waits = fleet(3).wanting("v2").but(0, ChildFacts::down);
    let before = look(rolling_out(&waits, &to_v2()), &waits, 0);
    assert_eq!(since(&waits, &before, "db-1"), now());
    assert_eq!(since(&waits.without(1), &before, "db-1"), later(60));
}

#[test]
fn rollout_cause_is_derived_from_observed_state() {
    let cause = |facts: &FleetFacts| match decide(facts, None, &RolloutTarget::Own, false) {
        super::super::FleetDecision::Start(start) => Some((start.target, start.cause)),
        _ => None,
    };
    let at_v2 = |c: ChildFacts| c.granted("v2").converged();
    let moved = fleet(2).wanting("v2").but(0, at_v2).but(1, at_v2);
    assert_eq!(cause(&moved), Some(("v2".into(), Cause::TemplateChanged)), "although its nodes are there");
    let edited = fleet(2).but(1, |c| c.with(|f| f.spec_hash = Some("v2".into())));
    assert_eq!(cause(&edited), Some(("v1".into(), Cause::ChildDrift)), "a hand edited the node");
    let left = fleet(2).but(1, at_v2);
    assert_eq!(cause(&left), Some(("v1".into(), Cause::TemplateChanged)), "we granted it once");
    let both = edited.but(0, at_v2);
    assert_eq!(cause(&both), Some(("v1".into(), Cause::TemplateChanged)));
    let lost = left.with(|f| f.record.unrecorded = true);
    assert_eq!(cause(&lost), Some(("v1".into(), Cause::ChildDrift)), "the status is lost");
}

#[test]
fn history_of_an_in_place_rollout_names_the_previous_revision() {
    use super::super::status::end;
    use crate::api::Ending;
    let facts = fleet(2).wanting("v2");
    let mut status = rolling_out(&facts, &to_v2());
    end(&mut status, &plan_to("v2"), Ending::Complete, "", now());
    assert_eq!(status.history[0].from_hash, "v1");
}

#[test]
fn unavailable_node_does_not_stall_a_completed_fleet() {
    let down = fleet(2).but(1, ChildFacts::down);
    let reason = |status: NodeDeploymentStatus| {
        let status = look(look(status, &down, 0), &down, 10_000);
        find(&status.conditions, STALLED).unwrap().reason.clone()
    };
    assert_eq!(reason(at_rest(&down)), "Progressing");
    let new = NodeDeploymentStatus::default();
    assert_eq!(reason(new), "NoProgress", "the first creation may stand still");
}

#[test]
fn only_failed_plan_reports_its_failure() {
    let said = |outcome: &str, failure: &str| {
        let facts = fleet(2).wanting("v2").rejecting(outcome);
        let mut status = at_rest(&facts);
        status.plan = Some(crate::api::RawPlan::of(&Plan { failure: failure.to_owned(), ..plan_to("v2") }));
        find(&look(status, &facts, 0).conditions, UP_TO_DATE).unwrap().message.clone()
    };
    assert!(said("Failed", "task x failed").starts_with("task x failed; the rollout of v2 failed;"));
    assert!(said("Failed", "").starts_with("the rollout of v2 failed;"));
    assert!(said("Aborted", "task x failed").starts_with("the rollout of v2 was aborted;"));
}
