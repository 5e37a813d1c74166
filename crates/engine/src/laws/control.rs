//! Operations on a plan from outside the executor, at any time and in any order.

use chrono::TimeDelta;
use futures::FutureExt;
use proptest::prelude::*;

use super::tasks::{Answer, Put, any_put, at, index, nothing, plan_of, put, put_key, say, states, world};
use crate::{
    Advance, Plan, PlanState, Registry, SkipRefused, TaskState, abort, advance, retry_seed, skip, supersede,
};

#[derive(Clone, Debug)]
enum Act {
    Advance,
    Skip(usize),
    Supersede,
    Abort,
    Restart,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Advance),
        4 => (0_usize..7).prop_map(Act::Skip),
        1 => Just(Act::Supersede),
        1 => Just(Act::Abort),
        2 => Just(Act::Restart),
    ]
}

fn rank(state: TaskState) -> u8 {
    match state {
        TaskState::Pending => 0,
        TaskState::Running => 1,
        TaskState::Complete | TaskState::Failed | TaskState::Skipped => 2,
    }
}

proptest! {
    #[test]
    fn plan_only_moves_forward_and_never_changes_after_its_end(
        puts in prop::collection::vec(any_put(), 1..6),
        acts in prop::collection::vec((any_act(), 0_i64..3), 0..40),
    ) {
        let registry = Registry::new();
        let (world, env) = world();
        let mut plan = plan_of(puts.iter().map(put).collect());
        let mut now = at(0);
        for (act, seconds) in acts {
            now += TimeDelta::seconds(seconds);
            let (before, runs) = (plan.clone(), world.runs());
            match act {
                Act::Advance => {
                    let _ = advance(&mut plan, &registry, &env, now, 600).now_or_never().unwrap();
                }
                Act::Skip(index) => {
                    let _ = skip(&mut plan, &format!("{}-{index}", before.id), &registry, now);
                }
                Act::Supersede => { supersede(&mut plan, now); }
                Act::Abort => { abort(&mut plan, now); }
                Act::Restart => plan = Plan::from_value(&plan.to_value()).unwrap(),
            }
            if !before.is_active() {
                prop_assert_eq!(&plan, &before, "a plan that was over has changed");
                prop_assert_eq!(world.runs().len(), runs.len(), "a plan that was over has acted");
            }
            prop_assert!(index(&plan) >= index(&before));
            for (task, was) in plan.tasks.iter().zip(&before.tasks) {
                prop_assert!(rank(task.state) >= rank(was.state), "{:?} became {:?}", was, task);
                let over = rank(was.state) == 2;
                prop_assert!(!over || task == was, "a task that was over has changed");
                prop_assert!(
                    !over || !world.runs()[runs.len()..].contains(&task.id), "a task that was over has acted"
                );
            }
            let all_over = plan.tasks.iter().all(|task| task.state.is_over());
            prop_assert!(plan.state != PlanState::Complete || all_over);
            prop_assert_eq!(plan.finished_at.is_some(), !plan.is_active());
        }
    }

    #[test]
    fn skip_affects_only_its_task_and_is_idempotent(
        puts in prop::collection::vec(any_put(), 1..6),
        advances in 0_usize..12,
        target in 0_usize..6,
    ) {
        let registry = Registry::new();
        let (_, env) = world();
        let mut plan = plan_of(puts.iter().map(put).collect());
        for turn in 0..advances {
            let _ = advance(&mut plan, &registry, &env, at(60 * turn as i64), 600).now_or_never().unwrap();
        }
        let before = plan.clone();
        let id = format!("{}-{target}", plan.id);
        let answer = skip(&mut plan, &id, &registry, at(1_000));
        let waits = before.is_active()
            && before.tasks.get(target).is_some_and(|task| !task.state.is_over())
            && puts[target].skippable;
        prop_assert_eq!(answer.is_ok(), waits);
        if waits {
            prop_assert_eq!(plan.tasks[target].state, TaskState::Skipped);
            let mut others = plan.clone();
            others.tasks[target] = before.tasks[target].clone();
            others.retry_at = before.retry_at;
            prop_assert_eq!(others, before);
            let once = plan.clone();
            prop_assert_eq!(skip(&mut plan, &id, &registry, at(2_000)), Ok(()));
            prop_assert_eq!(plan, once);
        } else {
            prop_assert_eq!(&plan, &before);
        }
    }
}

fn skippable(waits: u32) -> Put {
    Put { key: "s".to_owned(), value: 1, skippable: true, waits, ..Put::default() }
}

#[tokio::test]
async fn skipped_task_is_passed_over_and_the_last_completes_the_plan() {
    let (world, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![nothing(), put(&skippable(9)), put_key("b"), put(&skippable(9))]);
    let last = plan.tasks[3].id.clone();
    skip(&mut plan, &last, &registry, at(0)).unwrap();
    assert_eq!(advance(&mut plan, &registry, &env, at(1), 600).await, Advance::Checkpoint);
    assert!(matches!(advance(&mut plan, &registry, &env, at(2), 600).await, Advance::Waiting { .. }));
    let current = plan.tasks[1].id.clone();
    skip(&mut plan, &current, &registry, at(3)).unwrap();
    assert_eq!(plan.tasks[1].finished_at, Some(at(3)));
    assert_eq!(plan.tasks[1].message, "skipped by a user");
    assert_eq!(advance(&mut plan, &registry, &env, at(4), 600).await, Advance::Ended);
    assert_eq!(plan.state, PlanState::Complete);
    let skipped = TaskState::Skipped;
    assert_eq!(states(&plan), [TaskState::Complete, skipped, TaskState::Complete, skipped]);
    assert_eq!(world.runs(), [current, plan.tasks[2].id.clone()]);
}

#[tokio::test]
async fn skip_during_backoff_runs_the_next_task_immediately() {
    let (world, env) = world();
    let registry = Registry::new();
    let failing = Put { failures: 9, ..skippable(0) };
    let mut plan = plan_of(vec![put(&failing), put(&failing)]);
    assert!(matches!(advance(&mut plan, &registry, &env, at(0), 600).await, Advance::Waiting { .. }));
    assert!(plan.retry_at.is_some());
    let id = plan.tasks[0].id.clone();
    skip(&mut plan, &id, &registry, at(0)).unwrap();
    assert_eq!(plan.retry_at, None);
    assert!(matches!(advance(&mut plan, &registry, &env, at(0), 600).await, Advance::Waiting { .. }));
    assert_eq!(world.runs().len(), 2);
}

#[tokio::test]
async fn refused_skip_reports_the_reason() {
    let (_, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![nothing(), put_key("b"), say(Answer::Fail, "no"), put(&skippable(0))]);
    let ids: Vec<_> = plan.tasks.iter().map(|task| task.id.clone()).collect();
    let refused = |plan: &mut Plan, id: &str| skip(plan, id, &registry, at(0)).unwrap_err().to_string();
    assert_eq!(
        refused(&mut plan, "elsewhere-0"),
        format!("task elsewhere-0 cannot be skipped: plan {} has no such task", plan.id)
    );
    assert_eq!(
        refused(&mut plan, &ids[1]),
        format!("task {} cannot be skipped: tasks of type test-put are not skippable", ids[1])
    );
    let mut garbled = plan.clone();
    garbled.tasks[1].type_ = "test-unheard-of".to_owned();
    assert!(matches!(skip(&mut garbled, &ids[1], &registry, at(0)), Err(SkipRefused::Unresolved(_))));
    while advance(&mut plan, &registry, &env, at(1), 600).await == Advance::Checkpoint {}
    assert_eq!(refused(&mut plan, &ids[0]), format!("task {} cannot be skipped: it is Complete", ids[0]));
    assert_eq!(refused(&mut plan, &ids[2]), format!("task {} cannot be skipped: it is Failed", ids[2]));
    assert_eq!(refused(&mut plan, &ids[3]), format!("task {} cannot be skipped: its plan is Failed", ids[3]));
}

#[test]
fn only_the_first_external_end_of_a_plan_takes_effect() {
    for (end, state) in
        [(supersede as fn(&mut Plan, _) -> bool, PlanState::Superseded), (abort, PlanState::Aborted)]
    {
        let mut plan = plan_of(vec![nothing()]);
        plan.retry_at = Some(at(9));
        assert!(end(&mut plan, at(1)));
        assert_eq!((plan.state, plan.finished_at, plan.retry_at), (state, Some(at(1)), None));
        assert!(!supersede(&mut plan, at(2)) && !abort(&mut plan, at(2)));
        assert_eq!((plan.state, plan.finished_at), (state, Some(at(1))));
    }
}

#[test]
fn retry_is_the_next_attempt_at_the_same_target_with_a_new_id() {
    let failed = plan_of(vec![nothing()]);
    let again = super::tasks::recipe(vec![nothing()]).plan(retry_seed(&failed, "uid", failed.started_at));
    assert_eq!((again.attempt, &again.target_hash), (1, &failed.target_hash));
    assert_ne!(again.id, failed.id);
}
