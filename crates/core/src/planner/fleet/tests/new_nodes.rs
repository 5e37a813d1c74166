//! Rollouts that create nodes, for the hooks that follow.

use super::super::hooks::HookContext;
use super::super::{FleetDecision, decide};
use super::*;
use crate::api::{AtHook, HookPoint};
use crate::planner::fleet::Rollout;
use crate::planner::fleet::blocker::Blocker;
use crate::planner::hooks::HookPlacement;

fn hooked(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.spec.creation_hooks = HookPoint::OF_NEW_NODES.to_vec())
}

/// Two of four nodes exist, as before the scale-up.
fn scaled_up() -> FleetFacts {
    hooked(fleet(4)).without(3).without(2).with(|f| f.record.existed = 2)
}

fn begins(rollout_target: RolloutTarget, target: &str, cause: Cause) -> FleetDecision {
    FleetDecision::Start(start(rollout_target, target, cause))
}

fn blocked(facts: FleetFacts) -> FleetFacts {
    facts.with(|f| f.findings.blocker = Some(Blocker::Spec("no".to_owned())))
}

#[test]
fn nodes_are_created_by_a_rollout_if_hooks_follow() {
    let first = || begins(to("v1"), "v1", Cause::FirstCreation);
    let more = || begins(RolloutTarget::Own, "v1", Cause::ScaledUp);
    let only_scale_up = |f: &mut FleetFacts| f.spec.creation_hooks = vec![HookPoint::AfterScaleUp];
    let only_first = |f: &mut FleetFacts| f.spec.creation_hooks = vec![HookPoint::AfterFirstCreation];
    let table: Vec<(&str, FleetFacts, FleetDecision)> = vec![
        ("a new fleet", hooked(new_fleet(2)), first()),
        ("a new fleet that is paused", hooked(new_fleet(2)).paused(), first()),
        ("a new fleet without nodes", hooked(new_fleet(0)), FleetDecision::Keep),
        ("a new fleet that is refused", blocked(hooked(new_fleet(2))), FleetDecision::Keep),
        ("a new fleet without such hooks", new_fleet(2).with(only_scale_up), FleetDecision::Keep),
        ("a fleet whose status is lost", hooked(fleet(2)).never_completed(), FleetDecision::Keep),
        ("more nodes", scaled_up(), more()),
        ("more nodes while paused", scaled_up().paused(), more()),
        ("more nodes while the spec is refused", blocked(scaled_up()), more()),
        (
            "more nodes while the new template is rejected",
            scaled_up().wanting("v2").rejecting("Stalled"),
            more(),
        ),
        ("more nodes without such hooks", scaled_up().with(only_first), FleetDecision::Keep),
        (
            "more nodes and a new template",
            scaled_up().wanting("v2"),
            begins(to("v2"), "v2", Cause::TemplateChanged),
        ),
        ("a lost node", hooked(fleet(2)).without(1), FleetDecision::Keep),
        ("the repair was aborted", scaled_up().rejecting("Aborted"), FleetDecision::Keep),
        (
            "filled again from nothing, at another template",
            scaled_up().wanting("v2").with(|f| {
                f.record.scaled_to_zero = true;
                f.record.existed = 0;
                f.children = vec![];
            }),
            begins(to("v2"), "v2", Cause::ScaledUp),
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(decide(&facts, None, &RolloutTarget::Own, false), expected, "{what}");
    }
}

#[test]
fn rollout_at_its_last_hooks_begins_again_when_nodes_are_added() {
    let at = |point| {
        let at = AtHook {
            hook: "h".to_owned(),
            task_id: "t-0".to_owned(),
            attempt: 1,
            point,
            asks: false,
            failed: false,
            message: String::new(),
        };
        scaled_up().wanting("v2").with(|f| {
            f.rollout.at_hook = Some(at);
            f.rollout.now = Rollout::InPlace { cause: Cause::TemplateChanged };
        })
    };
    let again = FleetDecision::Supersede(start(to("v2"), "v2", Cause::TemplateChanged));
    for (point, is_last) in [
        (HookPoint::BeforeRollout, false),
        (HookPoint::AfterStep, false),
        (HookPoint::AfterFirstCreation, true),
        (HookPoint::AfterScaleUp, true),
        (HookPoint::AfterRollout, true),
    ] {
        let decide = |facts: &FleetFacts| decide(facts, Some(&plan_to("v2")), &to("v2"), false);
        let expected = if is_last { again.clone() } else { FleetDecision::Keep };
        assert_eq!(decide(&at(Some(point))), expected, "{point:?}");
        let whole = at(Some(point)).with(|f| f.record.existed = 4);
        assert_eq!(decide(&whole), FleetDecision::Keep, "{point:?}: the missing nodes are lost ones");
        let first = at(Some(point)).never_completed();
        assert_eq!(decide(&first), FleetDecision::Keep, "{point:?}: a part of the first creation");
    }
}

#[test]
fn hooks_after_a_creation_are_those_of_the_cause_and_those_still_owed() {
    use HookPoint::{AfterFirstCreation, AfterRollout, AfterScaleUp, BeforeRollout};
    let of = |cause| HookContext { cause: Some(cause), ..HookContext::default() };
    let hook = |at: HookPoint| {
        serde_json::from_value(
            serde_json::json!({"name": at.as_str().to_lowercase(), "at": at, "wait": {"seconds": 1}}),
        )
        .unwrap()
    };
    let hooks: Vec<_> = HookPoint::ALL.into_iter().map(hook).collect();
    let recipe = Recipe::parse(include_str!("../../../../../../plans/in-place.yaml")).unwrap();
    let plan_of = |context: HookContext| {
        let placement = HookPlacement { hooks: &hooks, points: context.points(), stops: vec![] };
        let seed = PlanSeed { uid: "u", target_hash: "v1", now: now(), attempt: 0, disambiguator: "" };
        placement.in_recipe(&recipe).plan(seed)
    };
    let of_rollout = || of(Cause::TemplateChanged).points();
    assert!(of_rollout().contains(&AfterRollout) && !of_rollout().contains(&AfterScaleUp));
    for (cause, point) in [(Cause::FirstCreation, AfterFirstCreation), (Cause::ScaledUp, AfterScaleUp)] {
        let context = of(cause);
        assert_eq!(context.points(), [point]);
        let mut plan = plan_of(context);
        let next = of(Cause::Superseded).owing(Some(&plan)).points();
        assert!(next.contains(&point) && next.contains(&BeforeRollout), "{cause}: {next:?}");
        for task in &mut plan.tasks {
            task.state = crate::engine::TaskState::Complete;
        }
        assert_eq!(of(Cause::Superseded).owing(Some(&plan)).points(), of_rollout(), "{cause}: it is done");
    }
    let repair = HookContext { own: true, has_grown: true, ..of(Cause::ChildDrift) };
    assert_eq!(repair.points(), [AfterScaleUp]);
    assert_eq!(
        HookContext { is_way_back: true, has_grown: true, ..of(Cause::Superseded) }.points(),
        [AfterScaleUp]
    );
}

#[test]
fn rollout_that_only_creates_nodes_is_not_an_upgrade() {
    use crate::api::FleetPhase;
    for (cause, facts, expected) in [
        (Cause::FirstCreation, hooked(new_fleet(2)), FleetPhase::Initializing),
        (Cause::ScaledUp, scaled_up(), FleetPhase::Pending),
        (Cause::TemplateChanged, scaled_up().wanting("v2"), FleetPhase::Upgrading),
    ] {
        let started = start(to("v1"), "v1", cause);
        let status = look(rolling_out(&facts, &started), &facts, 1);
        assert_eq!(status.rollout.as_ref().unwrap().waiting_for, "", "{cause}");
        assert_eq!(status.phase, expected.to_string(), "{cause}");
    }
}
