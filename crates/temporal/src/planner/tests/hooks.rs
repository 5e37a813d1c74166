//! The order of hooks in a rollout.

use serde_json::{Value, json};
use windlass_engine::{Plan, TaskState};

use super::{facts, now};
use crate::api::Reason;
use crate::planner::{Facts, begin, hooks};

fn hooked(rollout: Value, points: &[(&str, &str)]) -> Facts {
    let mut facts = facts(rollout);
    list(&mut facts, points);
    facts
}

fn list(facts: &mut Facts, points: &[(&str, &str)]) {
    let hook =
        |(name, at): &(&str, &str)| serde_json::from_value(json!({"name": name, "at": at, "approval": {}}));
    facts.spec.hooks = points.iter().map(|point| hook(point).unwrap()).collect();
}

fn plan(facts: &Facts, cause: Reason) -> Plan {
    begin::plan(facts, None, cause, 0, now())
}

fn names(plan: &Plan) -> Vec<String> {
    let name = |task: &windlass_engine::TaskRecord| {
        task.params["hook"].as_str().map_or_else(|| task.type_.clone(), |hook| format!("@{hook}"))
    };
    plan.tasks.iter().map(name).collect()
}

const ALL: [(&str, &str); 4] =
    [("d", "AfterRollout"), ("a", "BeforeRollout"), ("b", "AfterStep"), ("c", "BeforePromotion")];

#[test]
fn hooks_are_placed_at_their_points_in_each_strategy() {
    let table = [
        (json!({}), "@a create-version await-available await-registered claim-manager @c set-current @d"),
        (
            json!({"strategy": "Manual"}),
            "@a create-version await-available await-registered @c await-promote claim-manager set-current @d",
        ),
        (
            json!({"steps": [{"percent": 1, "hooks": true}, {"percent": 2}, {"percent": 3, "hooks": true}]}),
            "@a create-version await-available await-registered claim-manager ramp @b ramp ramp @b @c set-current @d",
        ),
    ];
    for (rollout, expected) in table {
        let facts = hooked(rollout.clone(), &ALL);
        assert_eq!(names(&plan(&facts, Reason::TemplateChanged)).join(" "), expected, "{rollout}");
        let repaired = names(&plan(&facts, Reason::ChildDrift)).join(" ");
        assert!(!repaired.contains('@'), "a repair has no hooks: {repaired}");
    }
}

#[test]
fn pending_tasks_follow_the_hook_list_and_started_ones_stay() {
    let rollout = json!({
        "gate": {"workflowType": "Check"},
        "steps": [{"percent": 1, "hooks": true}, {"percent": 2, "gate": true}, {"percent": 3, "gate": true, "hooks": true}],
    });
    let mut facts = hooked(rollout, &[("a", "BeforeRollout"), ("b", "AfterStep")]);
    let whole = plan(&facts, Reason::TemplateChanged);
    assert_eq!(
        names(&whole).join(" "),
        "@a create-version await-available await-registered claim-manager run-gate ramp @b run-gate ramp run-gate ramp @b set-current"
    );
    list(&mut facts, &[("x", "BeforeRollout"), ("y", "AfterStep"), ("z", "AfterRollout")]);
    // `done` tasks are done, and the next one runs.
    let table = [
        (
            0,
            "@a @x create-version await-available await-registered claim-manager run-gate ramp @y run-gate ramp run-gate ramp @y set-current @z",
        ),
        (
            7,
            "@a create-version await-available await-registered claim-manager run-gate ramp @b @y run-gate ramp run-gate ramp @y set-current @z",
        ),
        (
            8,
            "@a create-version await-available await-registered claim-manager run-gate ramp @b run-gate ramp run-gate ramp @y set-current @z",
        ),
        (
            10,
            "@a create-version await-available await-registered claim-manager run-gate ramp @b run-gate ramp run-gate ramp @y set-current @z",
        ),
    ];
    for (done, expected) in table {
        let mut plan = whole.clone();
        plan.tasks[..done].iter_mut().for_each(|task| task.state = TaskState::Complete);
        plan.tasks[done].state = TaskState::Running;
        let before: Vec<String> = plan.tasks[..=done].iter().map(|task| task.id.clone()).collect();
        assert!(hooks::follow(&facts, &mut plan), "{done}");
        assert_eq!(names(&plan).join(" "), expected, "{done}");
        assert_eq!(before, plan.tasks[..=done].iter().map(|task| task.id.clone()).collect::<Vec<_>>());
        assert!(!hooks::follow(&facts, &mut plan), "once");
    }
}

#[test]
fn plan_with_too_many_tasks_is_refused_naming_its_hooks() {
    let steps: Vec<Value> = (1..=20).map(|percent| json!({"percent": percent, "hooks": true})).collect();
    let many = [("a", "AfterStep"), ("b", "AfterStep"), ("c", "AfterStep"), ("d", "AfterStep")];
    let facts = hooked(json!({ "steps": steps }), &many);
    let sentence = hooks::too_many_tasks(&facts).unwrap();
    assert!(sentence.starts_with("hooks a, b, c, d: a rollout would have 105 tasks"), "{sentence}");
    assert_eq!(hooks::too_many_tasks(&hooked(json!({}), &many)), None);
}
