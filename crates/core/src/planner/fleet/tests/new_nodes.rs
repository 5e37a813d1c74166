//! Rollouts that create nodes, for the hooks that follow.

use super::super::hooks::{HookContext, NewNodes};
use super::super::{FleetDecision, decide};
use super::*;
use crate::api::HookPoint;
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
        ("a new fleet whose hooks are refused", blocked(hooked(new_fleet(2))), first()),
        ("a new fleet whose revision is not stored", hooked(new_fleet(2)).wanting("v9"), FleetDecision::Keep),
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
    // It was scaled to 0 before its hooks were done, and its last node is still there.
    let owed = plan_with(&[HookPoint::AfterFirstCreation]);
    let again = hooked(fleet(2)).never_completed().without(1);
    let ended = Plan { state: crate::engine::PlanState::Superseded, ..owed };
    assert_eq!(decide(&again, Some(&ended), &to("v1"), false), first());
    assert_eq!(decide(&again, Some(&done(ended)), &to("v1"), false), FleetDecision::Keep);
}

/// A plan with hooks at these points.
fn plan_with(points: &[HookPoint]) -> Plan {
    let hook = |at: HookPoint| {
        let name = at.as_str().to_lowercase();
        serde_json::from_value(serde_json::json!({"name": name, "at": at, "wait": {"seconds": 1}})).unwrap()
    };
    let hooks: Vec<_> = HookPoint::ALL.into_iter().map(hook).collect();
    let recipe = Recipe::parse(include_str!("../../../../../../plans/in-place.yaml")).unwrap();
    let placement = HookPlacement { hooks: &hooks, points: points.to_vec(), ..HookPlacement::default() };
    let seed = PlanSeed { uid: "u", target_hash: "v1", now: now(), attempt: 0, disambiguator: "" };
    placement.in_recipe(&recipe).plan(seed)
}

fn done(mut plan: Plan) -> Plan {
    for task in &mut plan.tasks {
        task.state = crate::engine::TaskState::Complete;
    }
    plan
}

#[test]
fn creation_gives_way_to_what_touches_nodes_that_serve() {
    let at = |cause, facts: FleetFacts| facts.with(|f| f.rollout.now = Rollout::InPlace { cause });
    let other_operator = |mut facts: FleetFacts| {
        let other = Rendering { hash: "another template of v1".into(), image: image("v1") };
        facts.renderings.insert(("v1".into(), None), other);
        facts
    };
    let own = |facts: &FleetFacts| decide(facts, Some(&plan_to("v1")), &RolloutTarget::Own, false);
    let scaling = || at(Cause::ScaledUp, scaled_up());
    assert_eq!(own(&scaling()), FleetDecision::Keep);
    let drift = start(RolloutTarget::Own, "v1", Cause::OperatorDrift);
    assert_eq!(own(&other_operator(scaling())), FleetDecision::Supersede(drift));
    assert_eq!(own(&other_operator(scaling()).paused()), FleetDecision::Keep, "it waits to be resumed");
    let template = start(to("v2"), "v2", Cause::TemplateChanged);
    assert_eq!(own(&scaling().wanting("v2")), FleetDecision::Supersede(template));
    // The first creation goes on, also with more nodes.
    let first = at(Cause::FirstCreation, hooked(fleet(3)).never_completed().without(2));
    assert_eq!(decide(&first, Some(&plan_to("v1")), &to("v1"), false), FleetDecision::Keep);
}

#[test]
fn hooks_after_a_creation_are_those_of_the_cause_and_those_still_owed() {
    use HookPoint::{AfterFirstCreation, AfterRollout, AfterScaleUp, BeforeRollout};
    let of = |cause| HookContext { cause: Some(cause), ..HookContext::default() };
    let of_rollout = || of(Cause::TemplateChanged).owing(None).points();
    assert!(of_rollout().contains(&AfterRollout) && !of_rollout().contains(&AfterScaleUp));
    for (cause, point) in [(Cause::FirstCreation, AfterFirstCreation), (Cause::ScaledUp, AfterScaleUp)] {
        assert_eq!(of(cause).owing(None).points(), [point]);
        let plan = plan_with(&[point]);
        let next = of(Cause::Superseded).owing(Some(&plan)).points();
        assert!(next.contains(&point) && next.contains(&BeforeRollout), "{cause}: {next:?}");
        assert_eq!(
            of(Cause::Superseded).owing(Some(&done(plan))).points(),
            of_rollout(),
            "{cause}: it is done"
        );
    }
    let new_nodes = NewNodes { of_scale_up: true, ..NewNodes::default() };
    let repair = HookContext { own: true, new_nodes, ..of(Cause::ChildDrift) };
    assert_eq!(repair.points(), [AfterScaleUp]);
    assert_eq!(
        HookContext { is_way_back: true, new_nodes, ..of(Cause::Superseded) }.points(),
        [AfterScaleUp]
    );
}

#[test]
fn hooks_after_a_creation_wait_for_the_first_start_of_all_nodes() {
    let at = |hook: HookPoint| {
        let at = crate::api::AtHook {
            hook: "h".to_owned(),
            task_id: "t-0".to_owned(),
            attempt: 1,
            point: Some(hook),
            asks: false,
            failed: false,
            message: String::new(),
        };
        move |c: ChildFacts| c.with(|f| f.at_hook = Some(at.clone()))
    };
    let table: Vec<(FleetFacts, Option<&str>)> = vec![
        (fleet(2), None),
        (fleet(2).without(1), Some("waiting for new nodes to be created")),
        (fleet(2).but(1, ChildFacts::down), Some("waiting for db-1 to be ready")),
        (fleet(2).but(1, at(HookPoint::AfterCreate)), Some("waiting for db-1 to be ready")),
        (fleet(2).but(1, at(HookPoint::AfterNode)), None),
    ];
    for (facts, expected) in table {
        assert_eq!(facts.waits_for_nodes().as_deref(), expected);
    }
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
