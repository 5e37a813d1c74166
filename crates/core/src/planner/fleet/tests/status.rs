//! The rollout in a fleet's status: counts, unconverged nodes, progress and the clock.

use super::super::SetFacts;
use super::super::status::{
    complete, end, is_stalled, record_request, reject, rollout_target_of, stall_deadline,
};
use super::*;
use crate::api::conditions::{STALLED, find};
use crate::api::{AtHook, Ending, NodeCounts, Rollout, Stage};
use crate::planner::fleet::blocker::Blocker;

fn to_v2() -> Start {
    start(to("v2"), "v2", Cause::TemplateChanged)
}

fn five() -> FleetFacts {
    fleet(5).wanting("v2")
}

fn done(child: ChildFacts) -> ChildFacts {
    child.granted("v2").converged()
}

fn rollout(status: &NodeDeploymentStatus) -> &Rollout {
    status.rollout.as_ref().unwrap()
}

type Case = (&'static str, FleetFacts, fn(&FleetFacts) -> NodeDeploymentStatus, &'static str);

#[test]
fn phase_is_the_first_matching_one() {
    let failed = |facts: FleetFacts| facts.but(0, ChildFacts::failed);
    let all_failed = |facts: FleetFacts| failed(facts).but(1, ChildFacts::failed);
    let idle = at_rest;
    let rolling = |facts: &FleetFacts| rolling_out(facts, &to_v2());
    let two = || fleet(2).wanting("v2");
    let mut taken = fleet(2).without(0);
    taken.conflicts.push(super::super::Conflict {
        name: "db-0".into(),
        ordinal: 0,
        message: "taken".to_owned(),
    });
    let table: Vec<Case> = vec![
        ("deleted", all_failed(two()).paused().with(|f| f.terminating = true), rolling, "Terminating"),
        ("paused", all_failed(two()).paused(), rolling, "Paused"),
        ("all failed", all_failed(two()), rolling, "Failed"),
        ("a rollout, some failed", failed(two()), rolling, "Upgrading"),
        ("some failed", failed(fleet(2)), idle, "Degraded"),
        ("never completed", new_fleet(2), idle, "Initializing"),
        ("never completed, one failed", failed(fleet(2).never_completed()), idle, "Degraded"),
        ("all ready", fleet(2), idle, "Ready"),
        ("one down", fleet(2).but(0, ChildFacts::down), idle, "Pending"),
        ("one missing", fleet(2).without(0), idle, "Pending"),
        ("one whose name is taken", taken, idle, "Pending"),
        ("one leaving", fleet(2).but(0, ChildFacts::terminating), idle, "Pending"),
    ];
    for (what, facts, status, expected) in table {
        assert_eq!(look(status(&facts), &facts, 0).phase, expected, "{what}");
    }
}

#[test]
fn status_counts_existing_ready_and_updated_nodes() {
    let facts = five()
        .but(0, done)
        .but(1, |c| c.with(|f| f.pod.available = false))
        .but(2, ChildFacts::down)
        .without(4);
    let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
    let counts = (status.replicas, status.ready_replicas, status.updated_replicas, status.available_replicas);
    assert_eq!(counts, (4, 3, 1, 2));
    let nodes = NodeCounts { total: 5, updated: 1, ready: 3, disrupted: 3, failed: 0 };
    assert_eq!(rollout(&status).nodes, nodes);
    assert_eq!(rollout(&status).summary, "Updating 1/5");
    assert_eq!(status.requested_rollout_hash, "v2");
    assert_eq!(status.selector, "windlass.dev/deployment=db,windlass.dev/set=first");
    assert_eq!((status.observed_generation, status.active_set.as_str()), (7, "first"));
}

#[test]
fn unconverged_nodes_are_sorted_worst_first_with_reasons() {
    let mut facts = fleet(8)
        .wanting("v2")
        .but(0, done)
        .but(1, |c| c.granted("v2").seen().failed())
        .but(2, |c| c.granted("v2").seen().without_pod())
        .but(3, ChildFacts::terminating)
        .but(4, |c| c.granted("v2").rolling())
        .but(6, |c| done(c).down().with_problem("SidecarUnreachable", "no answer").unreachable())
        .without(7);
    facts.conflicts.push(super::super::Conflict {
        name: "db-9".into(),
        ordinal: 9,
        message: "taken".to_owned(),
    });
    let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
    let named: Vec<(&str, &str)> =
        rollout(&status).unconverged.iter().map(|u| (u.name.as_str(), u.reason.as_str())).collect();
    let expected = [
        ("db-7", "Missing"),
        ("db-9", "InvalidSpec"),
        ("db-1", "ImagePullBackOff"),
        ("db-3", "Terminating"),
        ("db-2", "Missing"),
        ("db-6", "SidecarUnreachable"),
        ("db-4", "NotReady"),
        ("db-5", "WaitingForWave"),
    ];
    assert_eq!(named, expected);
}

#[test]
fn twenty_unconverged_nodes_are_listed_and_all_are_counted() {
    let mut facts = fleet(100).wanting("v2");
    for child in &mut facts.children[..60] {
        *child = child.clone().failed();
    }
    facts.children.truncate(80);
    let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
    let rollout = rollout(&status);
    assert_eq!(rollout.unconverged.len(), 20);
    assert_eq!(rollout.nodes, NodeCounts { total: 100, updated: 0, ready: 20, disrupted: 80, failed: 60 });
}

#[test]
fn unconverged_node_keeps_its_time_when_its_reason_changes() {
    let facts = five().but(0, ChildFacts::terminating).without(4);
    let first = look(rolling_out(&facts, &to_v2()), &facts, 0);
    let second = look(first.clone(), &facts, 60);
    assert_eq!(rollout(&first).unconverged, rollout(&second).unconverged);
    let other = facts.but(0, |c| c.with(|f| f.terminating = false).down());
    let third = look(second, &other, 90);
    let since = |name: &str| rollout(&third).unconverged.iter().find(|u| u.name == name).unwrap().since;
    assert_eq!((since("db-0"), since("db-4")), (now(), now()));
    let set_back = look(third.clone(), &other, -3600);
    for node in &rollout(&set_back).unconverged {
        assert_eq!(node.since, later(-3600), "{}: no later than the clock that was set back", node.name);
    }
    // The same holds for a node whose own status has a time from before the clock was set back.
    let failed = five().but(0, ChildFacts::failed);
    let begun = look(rolling_out(&failed, &to_v2()), &failed, -3600);
    let again = look(begun.clone(), &failed, -3590);
    assert_eq!(rollout(&begun).unconverged, rollout(&again).unconverged, "or each look would be a write");
}

#[test]
fn rollout_message_reports_the_problem_to_fix_first() {
    let message = |facts: &FleetFacts| {
        let mut status = rolling_out(facts, &to_v2());
        let mut plan = plan_to("v2");
        plan.tasks[0].message = "waiting for db-3 to run the target".to_owned();
        status.plan = Some(crate::api::RawPlan::of(&plan));
        rollout(&look(status, facts, 0)).message.clone()
    };
    assert_eq!(message(&five()), "waiting for db-3 to run the target");
    let refused = |c: ChildFacts| c.down().with_problem("InvalidSpec", "StatefulSet db-1 is not ours");
    assert_eq!(
        message(&five().but(1, refused)),
        "waiting for db-1: InvalidSpec: StatefulSet db-1 is not ours"
    );
    let failed = |c: ChildFacts| c.failed().with_problem("ErrImagePull", "no such image");
    assert_eq!(message(&five().but(1, failed)), "waiting for db-1: ErrImagePull: no such image");
}

#[test]
fn requested_repair_clears_only_its_own_rejection() {
    for (hash, expected) in [("v1", None), ("v2", Some(plan_to("v1").id.into()))] {
        let mut facts = fleet(2);
        facts.record.rejected = Some(crate::api::Rejected { hash: hash.to_owned(), ..Default::default() });
        let status = rolling_out(&facts, &start(RolloutTarget::Own, "v1", Cause::RetryRequested));
        assert_eq!(status.rejected.map(|r| r.plan_id), expected, "{hash}");
        let status = rolling_out(&facts, &start(RolloutTarget::Own, "v1", Cause::RestartRequested));
        assert_eq!(status.rejected.is_some(), hash == "v2", "a restart: {hash}");
    }
}

/// The node is Ready, but not yet for `minReadySeconds`.
fn not_yet_available(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.pod.available = false)
}

#[test]
fn newly_ready_node_is_progress_before_it_is_available() {
    let facts = fleet(2).wanting("v2").but(1, |c| c.granted("v2").seen().down());
    let begun = rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged));
    let updated = facts.clone().but(1, |c| c.running("v2"));
    let ready = updated.clone().but(1, |c| not_yet_available(c.converged()));
    let progress = |status: &NodeDeploymentStatus| rollout(status).last_progress_at;
    let status = look(look(look(begun, &facts, 0), &updated, 300), &ready, 500);
    assert_eq!(progress(&status), later(500), "it is ready");
    let status = look(look(status, &updated, 550), &ready, 560);
    assert_eq!(progress(&status), later(500), "it went and came back");
    let status = look(status, &updated.but(1, ChildFacts::converged), 800);
    assert_eq!(progress(&status), later(800), "it is available");
}

#[test]
fn operator_upgrade_is_not_rollout_progress() {
    let facts = fleet(2).wanting("v2").but(1, |c| not_yet_available(c.granted("v2").converged()));
    let begun = rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged));
    let mut before = look(begun, &facts, 0);
    before.rollout.as_mut().unwrap().max_ready = None;
    let after = look(before, &facts, 100);
    assert_eq!((rollout(&after).last_progress_at, rollout(&after).max_ready), (now(), Some(1)));
}

#[test]
fn updated_or_ready_node_is_progress_but_flapping_is_not() {
    let began = look(rolling_out(&five(), &to_v2()), &five(), 0);
    let progress = |status: &NodeDeploymentStatus| rollout(status).last_progress_at;
    let updated = five().but(4, |c| done(c).down());
    let ready = five().but(4, done);
    let began = look(began, &five(), 10);
    assert_eq!(progress(&began), now(), "nothing moved");
    let status = look(began, &updated, 20);
    assert_eq!(progress(&status), later(20), "one is updated");
    let status = look(status, &ready, 30);
    assert_eq!(progress(&status), later(30), "it is ready");
    let status = look(look(status, &updated, 40), &ready, 50);
    assert_eq!(progress(&status), later(30), "it went and came back");
    let status = look(status, &ready.but(3, done), 60);
    assert_eq!(progress(&status), later(60), "another one");
}

#[test]
fn rollout_stalls_on_time_after_the_clock_is_set_back() {
    let ahead = look(rolling_out(&five(), &to_v2()), &five(), 0);
    let back = look(ahead, &five(), -3600);
    assert!(!is_stalled(&back, &five(), later(-3600 + 599)));
    assert!(is_stalled(&back, &five(), later(-3600 + 600)));
}

/// Otherwise a rollout would be rolled back because the operator, or the API server, was away.
#[test]
fn operator_downtime_does_not_stall_a_rollout() {
    let status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    assert!(is_stalled(&status, &five(), later(660)), "it is found a little late");
    assert!(!is_stalled(&status, &five(), later(900)));
    let back = look(status.clone(), &five(), 900);
    assert_eq!(find(&back.conditions, "Stalled").unwrap().reason, "Progressing");
    assert_eq!(stall_deadline(&back, &five(), now()), Some(later(1_500)), "it has all of its time again");
    let said = look(status, &five(), 610);
    assert!(is_stalled(&said, &five(), later(9_000)), "what was said to be stalled stays so");
}

/// The clock is judged before what happened meanwhile is recorded.
#[test]
fn unrecorded_progress_prevents_a_stall() {
    let status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    assert!(is_stalled(&status, &five(), later(601)));
    assert!(!is_stalled(&status, &five().but(4, |c| done(c).down()), later(601)));
}

#[test]
fn rollout_stalls_at_its_deadline_unless_paused_or_held() {
    let status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    assert!(!is_stalled(&status, &five(), later(599)));
    assert!(is_stalled(&status, &five(), later(600)));
    assert_eq!(stall_deadline(&status, &five().paused(), now()), None);
    let held = fleet(2).wanting("v2").held_below_ordinal(1).but(1, done);
    assert_eq!(stall_deadline(&status, &held, now()), None);
    assert!(
        stall_deadline(&status, &held.but(1, ChildFacts::down), now()).is_some(),
        "the node above it is not done"
    );
    assert!(stall_deadline(&at_rest(&fleet(2)), &fleet(2), now()).is_none(), "no rollout");
}

#[test]
fn pause_does_not_consume_the_progress_deadline() {
    let status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    let status = look(status, &five().paused(), 100);
    let status = look(status, &five(), 5_000);
    assert_eq!(stall_deadline(&status, &five(), now()), Some(later(5_600)));
    let held = fleet(2).wanting("v2").held_below_ordinal(1).but(1, done);
    let released = held.clone().with(|f| f.spec.partition = 0);
    let status = look(rolling_out(&held, &to_v2()), &held, 0);
    let status = look(status, &released, 9_000);
    assert_eq!(stall_deadline(&status, &released, now()), Some(later(9_600)));
}

/// A node of the active set that leaves takes room in the wave, and the old set is waited for once traffic has moved.
#[test]
fn clock_stops_while_a_leaving_node_runs_its_hook() {
    let with_hook = |child: ChildFacts, failed: bool| {
        child.with(|f| f.at_hook = Some(AtHook { failed, ..AtHook::default() }))
    };
    let at_hook = |child: ChildFacts| with_hook(child, false);
    let status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    let due = |facts: &FleetFacts| stall_deadline(&status, facts, now());
    assert_eq!(due(&five()), Some(later(600)));
    assert_eq!(due(&five().with_surplus(node(5))), Some(later(600)), "it leaves without a hook");
    let leaves = five().with_surplus(at_hook(node(5)));
    assert_eq!(due(&leaves), None);
    assert_eq!(due(&five().but(0, at_hook)), None, "it moves");
    // The time for which the hook lasted does not count.
    let left = look(look(status.clone(), &leaves, 500), &five(), 5_000);
    assert_eq!(stall_deadline(&left, &five(), now()), Some(later(5_600)));
    // One that failed holds, and is what the conditions say, however long.
    let failed = five().with_surplus(with_hook(node(5), true));
    let held = look(status.clone(), &failed, 9_000);
    assert_eq!(stall_deadline(&held, &failed, now()), None);
    assert_eq!(find(&held.conditions, STALLED).unwrap().reason, "HookFailed");

    let unrelated = SetFacts { children: vec![at_hook(node(0))], ..SetFacts::default() };
    for (stage, set) in [(Stage::Retiring, "first"), (Stage::AwaitingEntrants, "v2")] {
        let facts = super::sets::amid(Strategy::BlueGreen, stage);
        let mut status = rolling_out(&facts, &to_v2());
        let rollout = status.rollout.as_mut().unwrap();
        (rollout.stage, rollout.entrant_set) = (stage, "v2".to_owned());
        rollout.incumbent_set = "first".to_owned();
        let due = |facts: &FleetFacts| stall_deadline(&status, facts, now());
        let mut other = facts.clone();
        other.sets.insert("older".into(), unrelated.clone());
        assert_eq!((due(&facts), due(&other)), (Some(later(600)), Some(later(600))), "{stage:?}");
        let mut own = facts;
        let child = &mut own.sets.get_mut(set).unwrap().children[1];
        *child = at_hook(child.clone());
        assert_eq!(due(&own), None, "{stage:?}");
    }
}

/// Such a fleet is scaled in as any other.
#[test]
fn initial_fill_clock_stops_while_a_leaving_node_runs_its_hook() {
    let facts = || fleet(2).never_completed();
    let leaves = facts().with_surplus(node(2));
    let at_hook = facts().with_surplus(node(2).with(|f| f.at_hook = Some(AtHook::default())));
    let status = look(NodeDeploymentStatus::default(), &leaves, 0);
    assert_eq!(stall_deadline(&status, &leaves, now()), Some(later(600)));
    assert_eq!(stall_deadline(&status, &at_hook, now()), None);
    let held = look(status, &at_hook, 500);
    assert!(!is_stalled(&held, &at_hook, later(9_000)));
    assert_eq!(find(&look(held.clone(), &at_hook, 9_000).conditions, STALLED).unwrap().reason, "Progressing");
    // The time for which the hook lasted does not count.
    let left = look(held, &leaves, 5_000);
    assert_eq!(stall_deadline(&left, &leaves, now()), Some(later(5_600)));
}

#[test]
fn manual_promotion_wait_does_not_consume_the_deadline() {
    let ready = || {
        let facts = super::sets::amid(Strategy::BlueGreen, Stage::AwaitingPromotion);
        facts.with(|f| f.spec.promotion = crate::api::Promotion::Manual)
    };
    let refused = ready().with(|f| f.findings.blocker = Some(Blocker::Spec("no".to_owned())));
    let forced = ready().with(|f| f.requests.force_promote = true);
    let mut status = rolling_out(&ready(), &to_v2());
    let rollout = status.rollout.as_mut().unwrap();
    (rollout.stage, rollout.entrant_set) = (Stage::AwaitingPromotion, "v2".to_owned());
    let status = look(status, &refused, 100);
    assert!(!is_stalled(&status, &forced, later(9_000)));
    let status = look(status, &forced, 9_000);
    assert_eq!(stall_deadline(&status, &forced, now()), Some(later(9_600)));
    // The same holds for `replicas: 0` past the point of no return.
    let promoting = super::sets::amid(Strategy::BlueGreen, Stage::Promoting);
    let none = promoting.clone().with(|f| f.spec.replicas = 0);
    let mut status = status;
    status.rollout.as_mut().unwrap().stage = Stage::Promoting;
    let status = look(status, &none, 9_100);
    let status = look(status, &promoting, 20_000);
    assert_eq!(stall_deadline(&status, &promoting, now()), Some(later(20_600)));
}

#[test]
fn clock_continues_for_same_target_and_restarts_for_another() {
    let mut status = look(rolling_out(&five(), &to_v2()), &five(), 0);
    super::super::status::begin(
        &mut status,
        &five(),
        &to_v2(),
        &plan_to("v2"),
        Some(&"db-revision".into()),
        later(100),
    );
    assert_eq!((rollout(&status).started_at, rollout(&status).last_progress_at), (now(), now()));
    let other = start(to("v3"), "v3", Cause::Superseded);
    super::super::status::begin(
        &mut status,
        &five().wanting("v3"),
        &other,
        &plan_to("v3"),
        Some(&"x".into()),
        later(200),
    );
    assert_eq!((rollout(&status).started_at, rollout(&status).last_progress_at), (later(200), later(200)));
    let own = start(RolloutTarget::Own, "v3", Cause::OperatorDrift);
    super::super::status::begin(
        &mut status,
        &five().wanting("v3"),
        &own,
        &plan_to("v3"),
        Some(&"x".into()),
        later(300),
    );
    assert_eq!(rollout(&status).started_at, later(300));
    assert_eq!(rollout_target_of(&status), RolloutTarget::Own);
}

#[test]
fn history_keeps_the_last_ten_plans_oldest_first() {
    let mut status = at_rest(&five());
    for n in 0..13 {
        let plan = Plan { id: format!("plan-{n}").into(), ..plan_to("v2") };
        end(&mut status, &plan, Ending::Superseded, "NewTarget", later(n));
    }
    let ids: Vec<&str> = status.history.iter().map(|h| h.plan_id.as_str()).collect();
    assert_eq!((ids.len(), ids[0], ids[9]), (10, "plan-3", "plan-12"));
    let last = &status.history[9];
    assert_eq!(
        (last.outcome.as_str(), last.from_hash.as_str(), last.target_hash.as_str()),
        ("Superseded", "v1", "v2")
    );
}

#[test]
fn completed_rollout_records_its_target_but_repair_does_not() {
    let mut status = rolling_out(&five(), &to_v2());
    complete(&mut status, &to("v2"));
    let completed = (status.last_completed_rollout_hash.as_str(), status.current_revision.as_str());
    assert_eq!((completed, status.rollout), (("v2", "db-revision"), None));
    let mut status = rolling_out(&fleet(5), &start(RolloutTarget::Own, "v1", Cause::OperatorDrift));
    status.current_revision = "db-current".to_owned();
    complete(&mut status, &RolloutTarget::Own);
    assert_eq!(
        (status.last_completed_rollout_hash.as_str(), status.current_revision.as_str()),
        ("v1", "db-current")
    );
}

#[test]
fn rejected_target_is_cleared_by_a_new_target_or_retry() {
    let mut status = at_rest(&five());
    let plan = Plan { id: "plan-1".into(), ..plan_to("v2") };
    reject(&mut status, &five(), &plan, Ending::Aborted);
    let rejected = status.rejected.clone().unwrap();
    assert_eq!(
        (rejected.hash.as_str(), rejected.plan_id.as_str(), rejected.outcome.as_str()),
        ("v2", "plan-1", "Aborted")
    );
    assert!(look(status.clone(), &five().rejecting("Aborted"), 0).rejected.is_some());
    assert!(look(status.clone(), &five().wanting("v3"), 0).rejected.is_none());
    let mut again = status.clone();
    super::super::status::begin(&mut again, &five(), &to_v2(), &plan_to("v2"), Some(&"x".into()), now());
    assert!(again.rejected.is_none());
    let mut repair = status;
    super::super::status::begin(
        &mut repair,
        &five(),
        &start(RolloutTarget::Own, "v1", Cause::OperatorDrift),
        &plan_to("v1"),
        Some(&"x".into()),
        now(),
    );
    assert!(repair.rejected.is_some(), "a repair of drift is no new try");
}

#[test]
fn new_fleet_completes_when_all_nodes_are_observed_available() {
    let first = |facts: &FleetFacts| look(at_rest(facts), facts, 0).last_completed_rollout_hash;
    let all = fleet(2).never_completed();
    let table = [
        ("all available", all.clone(), "v1"),
        ("one missing", all.clone().without(0), ""),
        ("one down", all.clone().but(0, ChildFacts::down), ""),
        ("one in flight", all.clone().but(0, |c| c.granted("v1")), ""),
        (
            "none wanted",
            all.clone().with(|f| {
                f.spec.replicas = 0;
                f.children = vec![];
            }),
            "",
        ),
        ("refused", all.clone().with(|f| f.findings.blocker = Some(Blocker::Spec("no".to_owned()))), ""),
        ("rejected", all.clone().rejecting("Aborted"), ""),
        ("at another revision than is wanted", all.wanting("v2"), ""),
    ];
    for (what, facts, expected) in table {
        assert_eq!(first(&facts), expected, "{what}");
    }
}

#[test]
fn refilled_fleet_that_stays_unavailable_stalls_on_time() {
    let empty = fleet(0).wanting("v2").with(|f| f.children = vec![]);
    let status = look(at_rest(&empty), &empty, 0);
    let broken = fleet(1).wanting("v2").but(0, |c| done(c).failed());
    let broken = broken.with(|f| f.record.scaled_to_zero = true);
    let status = look(status, &broken, 0);
    let stands = |seconds| {
        let status = look(status.clone(), &broken, seconds);
        find(&status.conditions, STALLED).unwrap().reason.clone()
    };
    assert_eq!(stands(broken.spec.deadline_seconds - 1), "Progressing");
    assert_eq!(stands(broken.spec.deadline_seconds), "NoProgress");
}

#[test]
fn fleet_refilled_from_zero_completes_the_requested_revision() {
    let empty = fleet(0).wanting("v2").with(|f| f.children = vec![]);
    let status = look(at_rest(&empty), &empty, 0);
    assert_eq!((status.last_completed_rollout_hash.as_str(), status.scaled_to_zero), ("v1", true));
    let filled = fleet(1).wanting("v2").but(0, done).with(|f| f.record.scaled_to_zero = true);
    let status = look(status, &filled, 60);
    assert_eq!((status.last_completed_rollout_hash.as_str(), status.scaled_to_zero), ("v2", false));
    let given_up = fleet(1).wanting("v2").rejecting("Aborted").with(|f| f.record.scaled_to_zero = true);
    let status = look(at_rest(&given_up), &given_up, 60);
    assert_eq!((status.last_completed_rollout_hash.as_str(), status.scaled_to_zero), ("v1", false));
    let shrinking = fleet(1).with(|f| f.spec.replicas = 0);
    assert!(!look(at_rest(&shrinking), &shrinking, 0).scaled_to_zero, "a node still exists");
}

#[test]
fn reconcile_of_an_unchanged_fleet_does_not_change_status() {
    let facts = five().but(0, |c| c.granted("v2").seen().failed()).but(1, done).without(4);
    let once = look(rolling_out(&facts, &to_v2()), &facts, 0);
    assert_eq!(look(once.clone(), &facts, 60), once);
    let rest = look(at_rest(&fleet(3)), &fleet(3), 0);
    assert_eq!(look(rest.clone(), &fleet(3), 60), rest);
}

#[test]
fn requester_is_recorded_only_with_its_rollout() {
    let asked = |verb: &str, by: &str| {
        serde_json::json!({"verb": verb, "by": by, "why": "because", "at": "2030-01-01T00:00:00Z"})
            .to_string()
    };
    let facts = |asked: String| {
        FleetFacts::default().with(|f| f.requests.asked = Some(asked).filter(|asked| !asked.is_empty()))
    };
    let mut status = NodeDeploymentStatus::default();
    record_request(&mut status, &facts(asked("pause", "alice")));
    let plan = plan_to("v2");
    begin(&mut status, &facts(asked("pause", "alice")), &to_v2(), &plan, Some(&"r".into()), now());
    assert!(rollout(&status).requests.is_empty(), "it was asked before the rollout began");
    for (index, by) in ["bob", "bob", "carol", "dave", "erin", "frank", "grace"].into_iter().enumerate() {
        record_request(&mut status, &facts(asked("abort", by)));
        assert!(rollout(&status).requests.len() <= index + 1);
    }
    assert_eq!(rollout(&status).requests.len(), 5, "no more than the last are kept");
    record_request(&mut status, &facts("not from the command line".to_owned()));
    end(&mut status, &plan, Ending::Aborted, "AbortRequested", now());
    let message = &status.history[0].message;
    assert!(message.starts_with("abort by carol: because; abort by dave"), "{message}");
    assert!(message.len() <= 256, "{message}");
}

#[test]
fn fleet_fails_when_entrants_fail_after_incumbents_are_deleted() {
    let mut facts = super::sets::amid(Strategy::BlueGreenImmediate, Stage::Promoting);
    let start = super::start(to("v2"), "v2", Cause::TemplateChanged);
    let entrants = &mut facts.sets.get_mut("v2").unwrap().children;
    *entrants =
        entrants.drain(..).map(|c| c.failed().with_problem("ImagePullBackOff", "no such image")).collect();
    let looked = |facts: &FleetFacts| {
        let status = look(rolling_out(facts, &start), facts, 5);
        let ready = crate::api::conditions::find(&status.conditions, "Ready").unwrap();
        (status.phase.clone(), ready.reason.clone(), ready.message.clone())
    };
    assert_eq!(looked(&facts).0, "Upgrading", "the old nodes still serve");
    facts.children.clear();
    let (phase, reason, message) = looked(&facts);
    assert_eq!((phase.as_str(), reason.as_str()), ("Failed", "NodesFailed"));
    assert!(message.contains("ImagePullBackOff: no such image"), "{message}");
    facts.sets.get_mut("v2").unwrap().children.pop();
    facts.sets.get_mut("v2").unwrap().children.push(node(1).granted("v2").converged());
    assert_eq!(looked(&facts).0, "Upgrading", "one of them runs");
}

#[test]
fn ready_node_with_unreachable_sidecar_is_unconverged() {
    let facts = five().but(4, |c| done(c).unreachable());
    let status = look(rolling_out(&facts, &to_v2()), &facts, 0);
    let named = rollout(&status).unconverged.iter().find(|u| u.name == "db-4").unwrap();
    assert_eq!((named.reason.as_str(), named.message.as_str()), ("SidecarUnreachable", "connection refused"));
}

#[test]
fn aborted_plan_rejects_its_own_target_only() {
    use super::super::status::reject;
    let rejected = |facts: &FleetFacts| {
        let mut status = rolling_out(facts, &to_v2());
        status.build_id = "of what is wanted".to_owned();
        reject(&mut status, facts, &plan_to("v2"), Ending::Aborted);
        let rejected = status.rejected.unwrap();
        (rejected.hash, rejected.build_id, plan_to("v2").id == *rejected.plan_id)
    };
    let of_v2 = ("v2".to_owned(), "v2-v2".to_owned(), true);
    assert_eq!(rejected(&fleet(2).wanting("v2")), of_v2);
    assert_eq!(rejected(&fleet(2).wanting("v3")), of_v2, "v3 was never tried");
    let custom = fleet(2).wanting("v2").with(|f| f.record.active_build_id = Some("one".into()));
    assert_eq!(rejected(&custom).1, "one", "in place, under the ID of the set");
    // A target that was rejected before a repair stays rejected.
    let mut repaired = fleet(2).wanting("v3").rejecting("RolledBack");
    repaired.record.rejected.as_mut().unwrap().build_id = "v3-v3".to_owned();
    assert_eq!(rejected(&repaired), ("v3".to_owned(), "v3-v3".to_owned(), true));
}
