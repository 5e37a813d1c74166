use chrono::{DateTime, Utc};
use serde_json::json;

use super::*;
use crate::engine::PlanSeed;

fn hook(name: &str, at: HookPoint) -> Hook {
    serde_json::from_value(json!({"name": name, "at": at, "wait": {"seconds": 1}})).unwrap()
}

fn recipe(yaml: &str) -> Recipe {
    Recipe::parse(yaml).unwrap()
}

const IN_PLACE: &str = include_str!("../../../../../plans/in-place.yaml");
const BLUE_GREEN: &str = include_str!("../../../../../plans/blue-green.yaml");
const IMMEDIATE: &str = include_str!("../../../../../plans/blue-green-immediate.yaml");
const HARD_FORK: &str = include_str!("../../../../../plans/hard-fork.yaml");
const NODE_UPDATE: &str = include_str!("../../../../../plans/node-update.yaml");
const RESTART_NODE: &str = include_str!("../../../../../plans/restart-node.yaml");
const REMOVE_NODE: &str = include_str!("../../../../../plans/remove-node.yaml");
const MARK_READY: &str = include_str!("../../../../../plans/mark-ready.yaml");

fn everywhere() -> Vec<Hook> {
    HookPoint::ALL.iter().map(|at| hook(&at.as_str().to_lowercase(), *at)).collect()
}

fn of_fleet() -> Vec<HookPoint> {
    HookPoint::ALL.into_iter().filter(|at| !at.is_of_node()).collect()
}

fn of_node() -> Vec<HookPoint> {
    HookPoint::ALL.into_iter().filter(|at| at.is_of_node()).collect()
}

/// A short form of a task: its type or the name of its hook, and its step.
fn word(type_: &str, params: &Value) -> String {
    let name = params["hook"].as_str().unwrap_or(type_);
    params[STEP].as_u64().map_or_else(|| name.to_owned(), |step| format!("{name}/{step}"))
}

fn words(plan: &Plan) -> Vec<String> {
    plan.tasks.iter().map(|task| word(&task.type_, &task.params)).collect()
}

fn plan(recipe: &Recipe) -> Plan {
    let now: DateTime<Utc> = DateTime::UNIX_EPOCH;
    recipe.plan(PlanSeed { uid: "uid", target_hash: "v1:a", now, attempt: 0, disambiguator: "" })
}

/// A plan whose first tasks are complete.
fn done(mut plan: Plan, count: usize) -> Plan {
    for task in &mut plan.tasks[..count] {
        task.state = TaskState::Complete;
    }
    plan
}

#[test]
fn hook_points_match_the_documentation() {
    let hooks = everywhere();
    for (yaml, points, expected) in [
        (
            IN_PLACE,
            of_fleet(),
            "beforerollout update-node-specs/0 afterstep/0 update-node-specs/1 afterstep/1 update-node-specs \
             await-spec-update mark-ready afterfirstcreation afterscaleup afterrollout",
        ),
        (
            BLUE_GREEN,
            of_fleet(),
            "beforerollout create-entrants await-nodes-running await-caught-up beforepromotion await-promotion \
             switch-traffic afterpromotion retire-incumbents afterfirstcreation afterscaleup afterrollout",
        ),
        (
            HARD_FORK,
            of_fleet(),
            "beforerollout create-entrants beforepromotion submit-halt await-nodes-at-height switch-traffic afterpromotion \
             retire-incumbents afterfirstcreation afterscaleup afterrollout",
        ),
        (
            IMMEDIATE,
            vec![HookPoint::BeforeRollout, HookPoint::AfterRollout],
            "beforerollout retire-incumbents create-entrants await-nodes-running switch-traffic afterrollout",
        ),
        (
            NODE_UPDATE,
            of_node(),
            "beforecreate apply-stateful-set apply-service beforenode replace-pod observe-image mark-ready aftercreate \
             afternode",
        ),
        (
            RESTART_NODE,
            of_node(),
            "beforecreate apply-stateful-set beforenode replace-pod mark-ready aftercreate afternode",
        ),
        (REMOVE_NODE, of_node(), "beforeremove await-removal"),
        (MARK_READY, vec![], "mark-ready"),
    ] {
        let recipe = recipe(yaml);
        let wanted = HookPlacement { hooks: &hooks, points, stops: vec![0, 1], nodes: None };
        let plan = plan(&wanted.in_recipe(&recipe));
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(words(&plan), expected, "{}", recipe.name);
        assert!(plan.tasks.iter().enumerate().all(|(index, task)| task.id == task_id(&plan.id, index)));
        assert_eq!(
            plan.tasks.iter().filter(|task| is_of_list(task)).count(),
            plan.tasks.iter().filter(|t| point_of(t).is_some()).count()
        );
        let bare = HookPlacement::default();
        assert_eq!(bare.in_recipe(&recipe), recipe, "without hooks it is as it was");
    }
}

#[test]
fn hooks_run_in_list_order_at_their_point_only() {
    let hooks = [
        hook("b", HookPoint::BeforeNode),
        hook("x", HookPoint::AfterRollout),
        hook("a", HookPoint::BeforeNode),
    ];
    let wanted =
        HookPlacement { hooks: &hooks, points: vec![HookPoint::BeforeNode], stops: vec![], nodes: None };
    let plan = plan(&wanted.in_recipe(&recipe(RESTART_NODE)));
    assert_eq!(words(&plan), ["apply-stateful-set", "b", "a", "replace-pod", "mark-ready"]);
}

#[test]
fn fleet_step_hooks_are_omitted_without_after_step_hooks() {
    let hooks = [hook("a", HookPoint::BeforeRollout)];
    let wanted = HookPlacement { hooks: &hooks, points: of_fleet(), stops: vec![0, 1], nodes: None };
    let plan = plan(&wanted.in_recipe(&recipe(IN_PLACE)));
    assert_eq!(words(&plan), ["a", "update-node-specs", "await-spec-update", "mark-ready"]);
}

#[test]
fn pending_hooks_follow_the_list_and_started_hooks_are_kept() {
    let steps = recipe(RESTART_NODE);
    let before =
        [hook("a", HookPoint::BeforeNode), hook("b", HookPoint::BeforeNode), hook("z", HookPoint::AfterNode)];
    let after =
        [hook("c", HookPoint::BeforeNode), hook("b", HookPoint::BeforeNode), hook("y", HookPoint::AfterNode)];
    let wanted =
        |hooks: &'static [Hook]| HookPlacement { hooks, points: of_node(), stops: vec![], nodes: None };
    let (before, after): (&'static [Hook], &'static [Hook]) =
        (Box::leak(Box::new(before)), Box::leak(Box::new(after)));
    let new = || plan(&wanted(before).in_recipe(&steps));
    for (count, running, expected) in [
        (0, None, "apply-stateful-set c b replace-pod mark-ready y"),
        (1, None, "apply-stateful-set c b replace-pod mark-ready y"),
        (1, Some(TaskState::Running), "apply-stateful-set a c b replace-pod mark-ready y"),
        (1, Some(TaskState::Failed), "apply-stateful-set a c b replace-pod mark-ready y"),
        (3, None, "apply-stateful-set a b c replace-pod mark-ready y"),
        (4, None, "apply-stateful-set a b replace-pod mark-ready y"),
        (6, None, "apply-stateful-set a b replace-pod mark-ready z y"),
    ] {
        let mut plan = done(new(), count);
        if let Some(state) = running {
            plan.tasks[count].state = state;
        }
        let begun = plan.clone();
        assert!(wanted(after).bring_to(&mut plan, &steps.tasks), "{count}");
        assert_eq!(words(&plan), expected.split_whitespace().collect::<Vec<_>>(), "{count} {running:?}");
        assert!(plan.tasks.iter().enumerate().all(|(index, task)| task.id == task_id(&plan.id, index)));
        let kept = count + usize::from(running.is_some());
        assert_eq!(plan.tasks[..kept], begun.tasks[..kept]);
        let same = plan.clone();
        assert!(
            !wanted(after).bring_to(&mut plan, &steps.tasks) && plan == same,
            "a second time nothing changes"
        );
    }
}

#[test]
fn hook_skipped_in_advance_remains_skipped() {
    let steps = recipe(RESTART_NODE);
    let before = [hook("a", HookPoint::AfterNode)];
    let after = [hook("b", HookPoint::BeforeNode), hook("a", HookPoint::AfterNode)];
    let wanted = HookPlacement { hooks: &before, points: of_node(), stops: vec![], nodes: None };
    let mut plan = plan(&wanted.in_recipe(&steps));
    plan.tasks[3].state = TaskState::Skipped;
    assert!(HookPlacement { hooks: &after, ..wanted }.bring_to(&mut plan, &steps.tasks));
    assert_eq!(words(&plan), ["apply-stateful-set", "b", "replace-pod", "mark-ready", "a"]);
    let states: Vec<bool> = plan.tasks.iter().map(|task| task.state == TaskState::Skipped).collect();
    assert_eq!(states, [false, false, false, false, true]);
}

#[test]
fn stops_follow_removed_and_added_steps_of_a_running_plan() {
    let steps = recipe(IN_PLACE);
    let hooks = [hook("a", HookPoint::AfterStep)];
    let wanted = |stops: Vec<usize>| HookPlacement { hooks: &hooks, points: of_fleet(), stops, nodes: None };
    let core = "update-node-specs await-spec-update mark-ready";
    for (from, count, to, expected) in [
        (vec![0, 1], 2, vec![0], format!("update-node-specs/0 a/0 {core}")),
        (vec![0, 1], 1, vec![1], format!("update-node-specs/0 update-node-specs/1 a/1 {core}")),
        (vec![0], 2, vec![0, 1], format!("update-node-specs/0 a/0 update-node-specs/1 a/1 {core}")),
        (vec![0], 1, vec![], format!("update-node-specs/0 {core}")),
    ] {
        let mut plan = done(plan(&wanted(from).in_recipe(&steps)), count);
        assert!(wanted(to.clone()).bring_to(&mut plan, &steps.tasks), "{to:?}");
        assert_eq!(words(&plan), expected.split_whitespace().collect::<Vec<_>>(), "{to:?}");
    }
}

#[test]
fn plan_of_another_recipe_and_ended_plan_are_left_unchanged() {
    let hooks = [hook("a", HookPoint::BeforeNode)];
    let wanted = HookPlacement { hooks: &hooks, points: of_node(), stops: vec![], nodes: None };
    let mut of_another = plan(&recipe(NODE_UPDATE));
    assert!(!wanted.bring_to(&mut of_another, &recipe(RESTART_NODE).tasks));
    let mut over = Plan { state: crate::engine::PlanState::Aborted, ..plan(&recipe(RESTART_NODE)) };
    assert!(!wanted.bring_to(&mut over, &recipe(RESTART_NODE).tasks));
}

#[test]
fn inserted_hook_keeps_removal_id_of_a_leaving_node() {
    let steps = recipe(REMOVE_NODE);
    let mut plan = plan(&steps);
    plan.tasks[0].params = json!({"removalID": "wish"});
    let hooks = [hook("a", HookPoint::BeforeRemove)];
    let wanted = HookPlacement { hooks: &hooks, points: of_node(), stops: vec![], nodes: None };
    assert!(wanted.bring_to(&mut plan, &steps.tasks));
    assert_eq!(plan.tasks[1].params, json!({"removalID": "wish"}));
}

#[test]
fn plan_exceeding_the_task_limit_is_refused_with_advice() {
    let hooks: Vec<Hook> = (0..4).map(|n| hook(&format!("h{n}"), HookPoint::AfterStep)).collect();
    let wanted = HookPlacement { hooks: &hooks, points: of_fleet(), stops: (0..6).collect(), nodes: None };
    let sentence = wanted.too_long_for(&recipe(IN_PLACE)).unwrap();
    assert!(sentence.starts_with("hooks h0, h1, h2, h3: a plan InPlace"), "{sentence}");
    assert!(sentence.contains("would have 33 tasks") && sentence.contains("the maximum is 32"), "{sentence}");
    assert_eq!(HookPlacement { stops: (0..5).collect(), ..wanted }.too_long_for(&recipe(IN_PLACE)), None);
}

#[test]
fn hooks_after_a_scale_up_run_again_for_more_nodes() {
    let hooks = [hook("balance", HookPoint::AfterScaleUp), hook("last", HookPoint::AfterRollout)];
    let recipe = recipe(IN_PLACE);
    let to = |nodes: i32| HookPlacement {
        hooks: &hooks,
        points: vec![HookPoint::AfterScaleUp, HookPoint::AfterRollout],
        nodes: Some(nodes),
        ..HookPlacement::default()
    };
    let new = || plan(&to(3).in_recipe(&recipe));
    assert_eq!(scaled_up_to(&new()), Some(3));
    let mut waits = new();
    assert!(!to(3).bring_to(&mut waits, &recipe.tasks));
    assert!(to(4).bring_to(&mut waits, &recipe.tasks));
    assert_eq!(words(&waits), ["update-node-specs", "await-spec-update", "mark-ready", "balance", "last"]);
    for (begun, state, expected) in
        [(3, TaskState::Running, "balance balance last"), (4, TaskState::Running, "balance last balance")]
    {
        let mut plan = done(new(), begun);
        plan.tasks[begun].state = state;
        assert!(to(4).bring_to(&mut plan, &recipe.tasks));
        assert_eq!(words(&plan)[3..].join(" "), expected);
        assert_eq!(scaled_up_to(&plan), Some(4));
        assert!(!to(4).bring_to(&mut plan, &recipe.tasks));
    }
}
