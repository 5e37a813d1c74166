//! Decisions about a rollout: it starts, or is superseded, aborted or rolled back.

use super::super::{FleetDecision, decide};
use super::*;
use crate::api::{OnStall, RestartTime};
use crate::engine::PlanState;
use crate::planner::fleet::Rollout;
use crate::planner::fleet::blocker::Blocker;
use crate::planner::growth::Growth;

const NOBODY_STALLS: bool = false;

/// The decision if no rollout is active.
fn decide_without_plan(facts: &FleetFacts) -> FleetDecision {
    decide(facts, None, &RolloutTarget::Own, NOBODY_STALLS)
}

/// The decision in the middle of a rollout to v2.
fn decide_with_active_plan(facts: &FleetFacts) -> FleetDecision {
    decide(facts, Some(&plan_to("v2")), &to("v2"), NOBODY_STALLS)
}

fn starts(rollout_target: RolloutTarget, target: &str, cause: Cause) -> FleetDecision {
    FleetDecision::Start(start(rollout_target, target, cause))
}

fn supersedes(target: &str, cause: Cause) -> FleetDecision {
    FleetDecision::Supersede(start(to(target), target, cause))
}

fn restart_asked(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.requests.restart = Some("2030-01-01T00:00:00Z".into()))
}

fn retry_asked(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.requests.retry = Some("rejected-plan".into()))
}

fn invalid(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.findings.blocker = Some(Blocker::Spec("template: no".to_owned())))
}

/// An operator of another version renders another template of v1.
fn other_operator(mut facts: FleetFacts) -> FleetFacts {
    let other = Rendering { hash: "another template of v1".into(), image: image("v1") };
    facts.renderings.insert(("v1".into(), None), other);
    facts
}

#[test]
fn idle_fleet_starts_a_rollout_only_with_a_cause() {
    let template = Cause::TemplateChanged;
    let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
        ("steady", fleet(2), FleetDecision::Keep),
        ("a new template", fleet(2).wanting("v2"), starts(to("v2"), "v2", template)),
        (
            "a new template while paused is recorded",
            fleet(2).wanting("v2").paused(),
            starts(to("v2"), "v2", template),
        ),
        (
            "a new template, deleted fleet",
            fleet(2).wanting("v2").with(|f| f.terminating = true),
            FleetDecision::Keep,
        ),
        ("a new template that was refused", invalid(fleet(2).wanting("v2")), FleetDecision::Keep),
        (
            "a new template, no nodes wanted",
            fleet(0).wanting("v2").with(|f| f.children = vec![]),
            FleetDecision::Keep,
        ),
        ("first creation", new_fleet(2), FleetDecision::Keep),
        (
            "first creation under way",
            fleet(2).never_completed().but(0, ChildFacts::never_ready),
            FleetDecision::Keep,
        ),
        (
            "first creation, and another template",
            fleet(2).never_completed().wanting("v2"),
            starts(to("v2"), "v2", template),
        ),
        (
            "filling again from nothing",
            fleet(2).wanting("v2").with(|f| {
                f.record.scaled_to_zero = true;
                f.children = vec![];
            }),
            FleetDecision::Keep,
        ),
        ("a node is missing", fleet(2).without(0), FleetDecision::Keep),
        ("a node is down", fleet(2).but(0, ChildFacts::down), FleetDecision::Keep),
        (
            "a node holds another known revision",
            fleet(2).but(0, |c| c.granted("v3").converged()),
            starts(to("v1"), "v1", template),
        ),
        ("a restart is asked for", restart_asked(fleet(2)), starts(to("v1"), "v1", Cause::RestartRequested)),
    ];
    for (what, facts, expected) in table {
        assert_eq!(decide_without_plan(&facts), expected, "{what}");
    }
}

#[test]
fn drift_starts_a_rollout_at_each_nodes_own_revision() {
    let own = |cause| starts(RolloutTarget::Own, "v1", cause);
    let unknown = |c: ChildFacts| c.with(|f| f.spec_hash = Some("edited".into()));
    let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
        ("another operator renders another template", other_operator(fleet(2)), own(Cause::OperatorDrift)),
        ("while paused it waits", other_operator(fleet(2)).paused(), FleetDecision::Keep),
        ("a node's spec was edited by hand", fleet(2).but(1, unknown), own(Cause::ChildDrift)),
        (
            "a node's template was edited and its pod lost",
            fleet(2).but(1, |c| c.running("v3")),
            own(Cause::ChildDrift),
        ),
        (
            "a node's StatefulSet was edited under its pod, and is put right by the node",
            fleet(2).but(1, |c| c.with(|f| f.pod.was_edited = true)),
            own(Cause::ChildDrift),
        ),
        (
            "a node's grant was edited by hand",
            fleet(2).but(1, |c| c.with(|f| f.grant.hash = Some("edited".into())).seen().down()),
            own(Cause::ChildDrift),
        ),
        (
            "the drifted node leaves",
            fleet(2).but(1, unknown).but(1, ChildFacts::terminating),
            FleetDecision::Keep,
        ),
        ("a surplus node drifted", fleet(2).with_surplus(unknown(node(2))), FleetDecision::Keep),
    ];
    for (what, facts, expected) in table {
        assert_eq!(decide_without_plan(&facts), expected, "{what}");
    }
}

#[test]
fn ungranted_restart_request_is_not_operator_drift() {
    let restart = Some(RestartTime::from("2030-01-01T00:00:00Z"));
    let mut facts = fleet(2).but(1, |c| c.with(|f| f.restarts.asked = restart.clone()));
    let restarted = Rendering { hash: "restarted template of v1".into(), image: image("v1") };
    facts.renderings.insert(("v1".into(), restart), restarted);
    assert_eq!(decide_without_plan(&facts), starts(RolloutTarget::Own, "v1", Cause::RestartRequested));
}

#[test]
fn rejected_target_is_not_retried_automatically() {
    for outcome in ["Aborted", "RolledBack", "Failed"] {
        let facts = fleet(2).wanting("v2").rejecting(outcome);
        let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
            ("nothing happens", facts.clone(), FleetDecision::Keep),
            (
                "a retry names the plan",
                retry_asked(facts.clone()),
                starts(to("v2"), "v2", Cause::RetryRequested),
            ),
            (
                "a retry names another plan",
                facts.clone().with(|f| f.requests.retry = Some("other".into())),
                FleetDecision::Keep,
            ),
            ("a retry of what was refused", retry_asked(invalid(facts.clone())), FleetDecision::Keep),
            (
                "a restart",
                restart_asked(facts.clone()),
                starts(RolloutTarget::Own, "v1", Cause::RestartRequested),
            ),
            (
                "operator drift",
                other_operator(facts.clone()),
                starts(RolloutTarget::Own, "v1", Cause::OperatorDrift),
            ),
            (
                "some nodes hold the rejected one",
                facts.clone().but(0, |c| c.granted("v2").converged()),
                FleetDecision::Keep,
            ),
            (
                "another target",
                facts.wanting("v3").with(|f| f.record.rejected = None),
                starts(to("v3"), "v3", Cause::TemplateChanged),
            ),
        ];
        for (what, facts, expected) in table {
            assert_eq!(decide_without_plan(&facts), expected, "{outcome}: {what}");
        }
    }
}

#[test]
fn aborted_drift_repair_is_not_retried_automatically() {
    let facts = other_operator(fleet(2)).rejecting("Aborted");
    assert_eq!(decide_without_plan(&facts), FleetDecision::Keep);
    assert_eq!(decide_without_plan(&retry_asked(facts)), starts(to("v1"), "v1", Cause::RetryRequested));
}

#[test]
fn failed_repair_under_a_rejected_target_waits_for_a_request() {
    // The plan that was rejected last is a repair, and its target is not the rejected one.
    let facts = || fleet(2).wanting("v2").rejecting("Failed").but(1, |c| c.running("v3"));
    let after = |id: &str, state, facts: &FleetFacts| {
        let repair = Plan { id: id.into(), state, ..plan_to("v1") };
        decide(facts, Some(&repair), &RolloutTarget::Own, NOBODY_STALLS)
    };
    let repair = |cause| starts(RolloutTarget::Own, "v1", cause);
    let this = "rejected-plan";
    for (what, id, state, facts, expected) in [
        ("it failed", this, PlanState::Failed, facts(), FleetDecision::Keep),
        ("it was aborted", this, PlanState::Aborted, facts(), FleetDecision::Keep),
        ("it is retried", this, PlanState::Failed, retry_asked(facts()), repair(Cause::RetryRequested)),
        (
            "a restart is requested",
            this,
            PlanState::Failed,
            restart_asked(facts()),
            repair(Cause::RestartRequested),
        ),
        ("it is complete", this, PlanState::Complete, facts(), repair(Cause::ChildDrift)),
        ("the failed plan is another one", "other", PlanState::Failed, facts(), repair(Cause::ChildDrift)),
    ] {
        assert_eq!(after(id, state, &facts), expected, "{what}");
    }
}

#[test]
fn active_rollout_continues_until_a_change_is_requested() {
    let base = || fleet(2).wanting("v2");
    let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
        ("the same target", base(), FleetDecision::Keep),
        ("a new target", base().wanting("v3"), supersedes("v3", Cause::Superseded)),
        (
            "a new target while paused is recorded",
            base().wanting("v3").paused(),
            supersedes("v3", Cause::Superseded),
        ),
        ("back to the last completed", base().wanting("v1"), supersedes("v1", Cause::Superseded)),
        ("a new target that was refused", invalid(base().wanting("v3")), FleetDecision::Keep),
        ("the fleet is deleted", base().wanting("v3").with(|f| f.terminating = true), FleetDecision::Keep),
        ("a restart", restart_asked(base()), supersedes("v2", Cause::RestartRequested)),
        ("no node is wanted any more", base().with(|f| f.spec.replicas = 0), FleetDecision::ScaledToZero),
        (
            "an abort that names another plan",
            base().with(|f| f.requests.abort = Some("other".into())),
            FleetDecision::Keep,
        ),
        ("an abort", base().with(|f| f.requests.abort = Some(plan_to("v2").id)), FleetDecision::Abort),
        (
            "an abort with a rollback",
            base().with(|f| {
                f.requests.abort = Some(plan_to("v2").id);
                f.requests.abort_rolls_back = true;
            }),
            FleetDecision::RollBack(start(to("v1"), "v1", Cause::Superseded)),
        ),
        (
            "an abort and a new target",
            base().wanting("v3").with(|f| f.requests.abort = Some(plan_to("v2").id)),
            FleetDecision::Abort,
        ),
        (
            "an abort and no node wanted",
            base().with(|f| {
                f.requests.abort = Some(plan_to("v2").id);
                f.spec.replicas = 0;
            }),
            FleetDecision::Abort,
        ),
        ("a node drifts", base().but(0, |c| c.running("v3")), FleetDecision::Keep),
    ];
    for (what, facts, expected) in table {
        assert_eq!(decide_with_active_plan(&facts), expected, "{what}");
    }
}

#[test]
fn drift_repair_is_superseded_only_by_a_new_target() {
    let repair = |facts: &FleetFacts| decide(facts, Some(&plan_to("v1")), &RolloutTarget::Own, NOBODY_STALLS);
    let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
        ("nothing new", other_operator(fleet(2)), FleetDecision::Keep),
        ("a new target", other_operator(fleet(2)).wanting("v2"), supersedes("v2", Cause::Superseded)),
        (
            "a target that is rejected",
            other_operator(fleet(2)).wanting("v2").rejecting("Aborted"),
            FleetDecision::Keep,
        ),
        (
            "what last completed is wanted again, and a node holds what was rejected before",
            other_operator(fleet(2)).but(1, |c| c.granted("v2").seen()),
            supersedes("v1", Cause::Superseded),
        ),
        (
            "nothing ever completed, and the nodes hold what is wanted",
            other_operator(fleet(2)).never_completed(),
            FleetDecision::Keep,
        ),
        (
            "nothing ever completed, and something else is wanted",
            other_operator(fleet(2)).never_completed().wanting("v2"),
            supersedes("v2", Cause::Superseded),
        ),
        (
            "nothing ever completed, and what else is wanted is rejected",
            other_operator(fleet(2)).never_completed().wanting("v2").rejecting("Aborted"),
            FleetDecision::Keep,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(repair(&facts), expected, "{what}");
    }
}

#[test]
fn stalled_rollout_rolls_back_only_when_configured_and_possible() {
    let back = FleetDecision::RollBack(start(to("v1"), "v1", Cause::Superseded));
    let fails = |child: ChildFacts| child.granted("v2").seen().failed();
    let base = || fleet(2).wanting("v2").but(1, fails).with(|f| f.spec.on_stall = OnStall::Rollback);
    let table: Vec<(&str, FleetFacts, bool, FleetDecision)> = vec![
        ("stalled", base(), true, back.clone()),
        ("not stalled", base(), false, FleetDecision::Keep),
        ("stalled under Hold", base().with(|f| f.spec.on_stall = OnStall::Hold), true, FleetDecision::Keep),
        ("nothing completed yet", base().never_completed(), true, FleetDecision::Keep),
        ("a new target at the same time", base().wanting("v3"), true, supersedes("v3", Cause::Superseded)),
    ];
    for (what, facts, stalled, expected) in table {
        assert_eq!(decide(&facts, Some(&plan_to("v2")), &to("v2"), stalled), expected, "{what}");
    }
    let on_its_way_back = base().rejecting("RolledBack");
    let way_back = |facts: &FleetFacts| decide(facts, Some(&plan_to("v1")), &to("v1"), true);
    assert_eq!(way_back(&on_its_way_back), FleetDecision::Keep, "the way back itself stalls");
    let drift = fleet(2).but(1, ChildFacts::failed).with(|f| f.spec.on_stall = OnStall::Rollback);
    let drift = decide(&drift, Some(&plan_to("v1")), &RolloutTarget::Own, true);
    assert_eq!(drift, FleetDecision::Keep, "a repair of drift stalls");
}

#[test]
fn retry_supersedes_a_stalled_rollback() {
    let retried = FleetDecision::Supersede(start(to("v2"), "v2", Cause::RetryRequested));
    let facts = || fleet(2).wanting("v2").rejecting("RolledBack");
    let other = facts().with(|f| f.requests.retry = Some("other".into()));
    let table: Vec<(&str, FleetFacts, RolloutTarget, FleetDecision)> = vec![
        ("it is asked for", retry_asked(facts()), to("v1"), retried),
        ("nobody asks", facts(), to("v1"), FleetDecision::Keep),
        ("another plan is named", other, to("v1"), FleetDecision::Keep),
        ("it was refused", invalid(retry_asked(facts())), to("v1"), FleetDecision::Keep),
        ("a repair stands still", retry_asked(facts()), RolloutTarget::Own, FleetDecision::Keep),
    ];
    for (what, facts, rollout_target, expected) in table {
        assert_eq!(decide(&facts, Some(&plan_to("v1")), &rollout_target, true), expected, "{what}");
    }
}

#[test]
fn retry_during_rollback_starts_after_the_rollback() {
    let facts = retry_asked(fleet(2).wanting("v2").rejecting("RolledBack"));
    let way_back = decide(&facts, Some(&plan_to("v1")), &to("v1"), NOBODY_STALLS);
    assert_eq!(way_back, FleetDecision::Keep);
    assert_eq!(decide_without_plan(&facts), starts(to("v2"), "v2", Cause::RetryRequested));
}

#[test]
fn rollout_with_lost_plan_resumes_toward_its_target() {
    let lost = |facts: FleetFacts| {
        facts.with(|f| f.rollout.now = Rollout::InPlace { cause: Cause::RestartRequested })
    };
    let begun =
        |facts: &FleetFacts, rollout_target: &RolloutTarget| match decide(facts, None, rollout_target, false)
        {
            FleetDecision::Start(start) => Some((start.rollout_target, start.target, start.cause)),
            _ => None,
        };
    let again = |rollout_target: RolloutTarget, target: &str| {
        Some((rollout_target, target.into(), Cause::RestartRequested))
    };
    // Nothing is left to grant, but the rollout still has to end.
    assert_eq!(begun(&lost(fleet(2)), &to("v1")), again(to("v1"), "v1"));
    assert_eq!(begun(&lost(fleet(2).never_completed()), &to("v1")), again(to("v1"), "v1"));
    assert_eq!(
        begun(&lost(fleet(2).wanting("v3")), &to("v2")),
        again(to("v2"), "v2"),
        "it is superseded then"
    );
    assert_eq!(begun(&lost(fleet(2)), &RolloutTarget::Own), again(RolloutTarget::Own, "v1"));
    assert_eq!(begun(&lost(fleet(2)), &to("")), again(to("v1"), "v1"), "nobody knows where it went");
    let none = lost(fleet(0).with(|f| f.spec.replicas = 0));
    assert_eq!(decide(&none, None, &to("v1"), false), FleetDecision::ScaledToZero);
}

fn growing(facts: FleetFacts) -> FleetFacts {
    facts.but(1, |child| child.with(|f| f.growth = Growth::OldTemplate))
}

#[test]
fn claims_grow_in_a_rollout_that_every_other_rollout_precedes() {
    let grows = |target: &str| {
        let strategy = Strategy::GrowClaims;
        let start = start(RolloutTarget::Own, target, Cause::ClaimsGrown);
        FleetDecision::Start(Start { strategy, ..start })
    };
    let blue_green = |facts: FleetFacts| facts.with(|f| f.spec.strategy = Strategy::BlueGreen);
    for (case, facts, expected) in [
        ("in place", growing(fleet(2)), grows("v1")),
        ("beside another set", blue_green(growing(fleet(2))), grows("v1")),
        ("before anything has completed", growing(fleet(2).never_completed()), grows("v1")),
        ("they may not", invalid(growing(fleet(2))), FleetDecision::Keep),
        ("paused", growing(fleet(2)).paused(), FleetDecision::Keep),
        (
            "a new template, too",
            growing(fleet(2)).wanting("v2"),
            starts(to("v2"), "v2", Cause::TemplateChanged),
        ),
        (
            "drift, too",
            other_operator(growing(fleet(2))),
            starts(RolloutTarget::Own, "v1", Cause::OperatorDrift),
        ),
    ] {
        assert_eq!(decide_without_plan(&facts), expected, "{case}");
    }
    let mut plan = plan_to("v1");
    plan.recipe = Strategy::GrowClaims.recipe().to_owned();
    let own = |target: &str, cause| FleetDecision::Supersede(start(RolloutTarget::Own, target, cause));
    let under_way = |facts: FleetFacts| {
        growing(facts).with(|f| f.rollout.now = Rollout::InPlace { cause: Cause::ClaimsGrown })
    };
    for (case, facts, expected) in [
        ("it goes on", under_way(fleet(2)), FleetDecision::Keep),
        ("while it stalls", under_way(fleet(2)).with(|f| f.record.stalled = true), FleetDecision::Keep),
        ("a new template", under_way(fleet(2)).wanting("v2"), supersedes("v2", Cause::TemplateChanged)),
        ("drift", other_operator(under_way(fleet(2))), own("v1", Cause::OperatorDrift)),
        (
            "an abort",
            under_way(fleet(2)).with(|f| f.requests.abort = Some(plan.id.clone())),
            FleetDecision::Abort,
        ),
        ("no nodes", under_way(fleet(2)).with(|f| f.spec.replicas = 0), FleetDecision::ScaledToZero),
    ] {
        let on_stall = facts.with(|f| f.spec.on_stall = OnStall::Rollback);
        assert_eq!(decide(&on_stall, Some(&plan), &RolloutTarget::Own, true), expected, "{case}");
    }
}

#[test]
fn node_counts_as_updated_once_its_claims_have_grown() {
    let facts = growing(fleet(2));
    let updated = |facts: &FleetFacts| {
        facts.wanted().filter(|child| facts.is_updated(child, &RolloutTarget::Own)).count()
    };
    assert_eq!(updated(&facts), 2, "in a rollout that is about something else");
    let grows = facts.with(|f| f.rollout.now = Rollout::InPlace { cause: Cause::ClaimsGrown });
    assert_eq!(updated(&grows), 1);
}
