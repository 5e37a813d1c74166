//! Tasks whose failure holds their plan, tasks that skip themselves, and tasks that keep state between runs.

use futures::FutureExt;
use serde_json::json;

use super::tasks::{at, nothing, plan_of, step, world};
use crate::{
    Advance, Plan, PlanState, Registry, SkipRefused, TaskState, abort, advance, check_shape, held_by,
    pass_over, skip, stalled, supersede, try_again,
};

#[allow(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn tried(answers: serde_json::Value, holds: bool) -> crate::Step {
    step("test-try", json!({"answers": answers, "holds": holds}))
}

fn run(plan: &mut Plan, seconds: i64) -> Advance {
    let (_, env) = world();
    advance(plan, &Registry::new(), &env, at(seconds), 600).now_or_never().unwrap()
}

#[test]
fn held_failure_runs_nothing_until_a_user_decides() {
    let mut plan = plan_of(vec![tried(json!(["Failed"]), true), nothing()]);
    assert_eq!(run(&mut plan, 0), Advance::Held);
    assert_eq!((plan.state, plan.tasks[0].state), (PlanState::Active, TaskState::Failed));
    assert_eq!(plan.tasks[0].message, "try 1: Failed");
    assert_eq!(held_by(&plan).map(|task| task.id.clone()), Some(plan.tasks[0].id.clone()));
    let held = plan.clone();
    assert_eq!(run(&mut plan, 700), Advance::Held);
    assert_eq!(plan, held, "it was run, or written, again");
    assert_eq!(stalled(&plan, at(7000)), None, "what has failed is not late");
    assert_eq!(Plan::from_value(&plan.to_value()), Ok(plan));
}

#[test]
fn failed_task_is_retried_in_the_same_plan_with_a_new_deadline() {
    let mut plan = plan_of(vec![tried(json!(["Failed", "Failed", "Done"]), true), nothing()]);
    assert!(!try_again(&mut plan), "nothing has failed yet");
    let _ = run(&mut plan, 0);
    assert_eq!(plan.tasks[0].attempt, 0);
    assert!(try_again(&mut plan));
    let record = &plan.tasks[0];
    assert_eq!(
        (record.state, record.attempt, record.started_at, record.deadline),
        (TaskState::Pending, 2, None, None)
    );
    assert_eq!(run(&mut plan, 50), Advance::Held);
    assert_eq!(plan.tasks[0].started_at, Some(at(50)));
    assert!(try_again(&mut plan));
    assert_eq!(run(&mut plan, 90), Advance::Checkpoint);
    assert_eq!((plan.tasks[0].state, plan.tasks[0].attempt), (TaskState::Complete, 3));
    assert_eq!(run(&mut plan, 90), Advance::Ended);
    assert_eq!(plan.state, PlanState::Complete);
}

#[test]
fn failed_task_can_be_skipped_passed_over_or_abandoned() {
    let failed = || {
        let mut plan = plan_of(vec![tried(json!(["Failed"]), true), nothing()]);
        let _ = run(&mut plan, 0);
        plan
    };
    let mut plan = failed();
    let id = plan.tasks[0].id.clone();
    assert_eq!(skip(&mut plan, &id, &Registry::new(), at(1)), Ok(()));
    assert_eq!((run(&mut plan, 1), plan.state), (Advance::Ended, PlanState::Complete));

    let mut plan = failed();
    assert!(pass_over(&mut plan) && !pass_over(&mut plan));
    assert_eq!((plan.tasks[0].state, plan.tasks[0].message.as_str()), (TaskState::Skipped, "try 1: Failed"));
    assert_eq!((run(&mut plan, 1), plan.state), (Advance::Ended, PlanState::Complete));

    for end in [abort, supersede] {
        let mut plan = failed();
        assert!(end(&mut plan, at(1)));
        let over = plan.clone();
        assert!(!try_again(&mut plan) && !pass_over(&mut plan) && held_by(&plan).is_none());
        assert!(matches!(skip(&mut plan, &id, &Registry::new(), at(1)), Err(SkipRefused::TaskOver { .. })));
        assert_eq!((run(&mut plan, 2), plan), (Advance::Ended, over));
    }
}

#[test]
fn failure_of_a_non_holding_task_ends_its_plan() {
    let mut plan = plan_of(vec![tried(json!(["Failed"]), false), nothing()]);
    assert_eq!(run(&mut plan, 0), Advance::Ended);
    assert_eq!(plan.state, PlanState::Failed);
    assert!(plan.failure.ends_with("failed: try 1: Failed"), "{}", plan.failure);
}

#[test]
fn active_plan_with_any_other_failed_task_is_invalid() {
    let registry = Registry::new();
    let steps = || vec![tried(json!(["Done"]), true), tried(json!(["Done"]), true), nothing()];
    for (failed, is_taken) in [(0, true), (1, false), (2, false)] {
        let mut plan = plan_of(steps());
        plan.tasks[failed].state = TaskState::Failed;
        assert_eq!(check_shape(&plan, &registry).is_ok(), is_taken, "{failed}");
    }
    let mut plan = plan_of(vec![tried(json!(["Done"]), false), nothing()]);
    plan.tasks[0].state = TaskState::Failed;
    assert!(check_shape(&plan, &registry).is_err());
}

#[test]
fn unnecessary_task_is_skipped_with_a_reason_and_checkpointed() {
    let mut plan = plan_of(vec![tried(json!(["Skipped"]), true), nothing()]);
    assert_eq!(run(&mut plan, 3), Advance::Checkpoint);
    let record = &plan.tasks[0];
    assert_eq!((record.state, record.message.as_str()), (TaskState::Skipped, "try 1: Skipped"));
    assert_eq!(record.finished_at, Some(at(3)));
}

#[test]
fn task_progress_is_restored_on_the_next_run() {
    let mut plan = plan_of(vec![tried(json!(["Progress", "Progress", "Done"]), true), nothing()]);
    for turn in [1, 2] {
        assert!(matches!(run(&mut plan, turn), Advance::Waiting { recheck_after: Some(_) }));
        assert_eq!(plan.tasks[0].progress, json!({"runs": turn}));
        plan = Plan::from_value(&plan.to_value()).unwrap();
    }
    assert_eq!(run(&mut plan, 3), Advance::Checkpoint);
}

#[test]
fn task_sets_its_own_deadline_or_none() {
    for (due, deadline) in [(json!(null), Some(at(600))), (json!(7), Some(at(7))), (json!(-1), None)] {
        let mut plan = plan_of(vec![step("test-try", json!({"answers": ["Progress"], "due": due}))]);
        let _ = run(&mut plan, 0);
        assert_eq!(plan.tasks[0].deadline, deadline, "{due}");
    }
}
