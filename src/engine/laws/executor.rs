//! How a plan is carried out, case by case.

use super::tasks::{Answer, at, nothing, plan_of, put, say, world};
use crate::engine::{Advance, PlanState, Registry, TaskState, advance};

#[tokio::test]
async fn a_task_that_must_not_be_repeated_is_followed_by_a_checkpoint_and_the_last_ends_the_plan() {
    let (world, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![put("a", 1), put("b", 2)]);
    assert_eq!(advance(&mut plan, &registry, &env, at(1), 600).await, Advance::Checkpoint);
    assert_eq!(world.state.lock().unwrap().get("b"), None);
    assert_eq!(advance(&mut plan, &registry, &env, at(2), 600).await, Advance::Ended);
    assert_eq!(plan.state, PlanState::Complete);
    assert_eq!(plan.finished_at, Some(at(2)));
    assert_eq!(world.state.lock().unwrap().get("b"), Some(&2));
}

#[test]
fn the_recipes_that_come_with_windlass_can_be_read() {
    let registry = Registry::builtin_recipes().unwrap();
    let names: Vec<_> = registry.recipes().map(|recipe| recipe.name.as_str()).collect();
    assert_eq!(names, ["InPlace", "MarkReady", "NodeUpdate", "RestartNode"]);
}

#[tokio::test]
async fn a_terminal_error_fails_the_task_and_the_plan_and_names_both() {
    let (_, env) = world();
    let mut plan = plan_of(vec![nothing(), say(Answer::Fail, "the image is no image"), put("b", 2)]);
    assert_eq!(advance(&mut plan, &Registry::new(), &env, at(1), 600).await, Advance::Checkpoint);
    assert_eq!(advance(&mut plan, &Registry::new(), &env, at(2), 600).await, Advance::Ended);
    assert_eq!(plan.state, PlanState::Failed);
    let states: Vec<_> = plan.tasks.iter().map(|task| task.state).collect();
    assert_eq!(states, [TaskState::Complete, TaskState::Failed, TaskState::Pending]);
    assert_eq!(plan.failure, format!("task test-say ({}-1) failed: the image is no image", plan.id));
}
