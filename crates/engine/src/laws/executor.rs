//! The execution of a plan, case by case.

use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use super::tasks::{Answer, at, nothing, plan_of, put_key, say, states, step, world};
use crate::sentence::{MAX_FAILURE_BYTES, MAX_MESSAGE_BYTES, cut};
use crate::{
    Advance, Deadline, Plan, PlanState, Registry, TaskState, advance, backoff, next_deadline, stalled,
};

/// Advances a plan whose tasks need nothing from the environment.
async fn advance_at(plan: &mut Plan, seconds: i64) -> Advance {
    advance(plan, &Registry::new(), &world().1, at(seconds), 600).await
}

#[tokio::test]
async fn non_replayable_task_is_followed_by_a_checkpoint() {
    let mut plan = plan_of(vec![put_key("a"), put_key("b")]);
    assert_eq!(advance_at(&mut plan, 1).await, Advance::Checkpoint);
    assert_eq!(states(&plan), [TaskState::Complete, TaskState::Pending]);
    assert_eq!(plan.tasks[0].finished_at, Some(at(1)));
    assert_eq!(advance_at(&mut plan, 2).await, Advance::Ended);
    assert_eq!((plan.state, plan.finished_at), (PlanState::Complete, Some(at(2))));
}

#[tokio::test]
async fn terminal_error_fails_task_and_plan_and_names_both() {
    let mut plan = plan_of(vec![nothing(), say(Answer::Fail, "the image is no image"), put_key("b")]);
    assert_eq!(advance_at(&mut plan, 1).await, Advance::Checkpoint);
    assert_eq!(advance_at(&mut plan, 2).await, Advance::Ended);
    assert_eq!((plan.state, plan.finished_at), (PlanState::Failed, Some(at(2))));
    assert_eq!(states(&plan), [TaskState::Complete, TaskState::Failed, TaskState::Pending]);
    assert_eq!(plan.tasks[1].message, "the image is no image");
    assert_eq!(plan.failure, format!("task test-say ({}-1) failed: the image is no image", plan.id));
}

#[tokio::test]
async fn continued_wait_changes_nothing() {
    let mut plan = plan_of(vec![say(Answer::Wait, "waiting for the pod")]);
    assert_eq!(advance_at(&mut plan, 1).await, Advance::Waiting { recheck_after: None });
    assert_eq!(plan.tasks[0].message, "waiting for the pod");
    assert_eq!(plan.tasks[0].started_at, Some(at(1)));
    let before = plan.clone();
    assert_eq!(advance_at(&mut plan, 2).await, Advance::Waiting { recheck_after: None });
    assert_eq!(plan, before);
}

#[tokio::test]
async fn completed_task_clears_its_wait_message() {
    let (_, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![step("test-put", json!({"key": "a", "waits": 1}))]);
    let _ = advance(&mut plan, &registry, &env, at(0), 600).await;
    assert_eq!(plan.tasks[0].message, "waiting for another turn");
    assert_eq!(advance(&mut plan, &registry, &env, at(1), 600).await, Advance::Ended);
    assert_eq!((plan.tasks[0].state, plan.tasks[0].message.as_str()), (TaskState::Complete, ""));
}

#[tokio::test]
async fn invalidated_earlier_result_supersedes_the_plan() {
    let mut plan = plan_of(vec![say(Answer::Invalidate, "the pod is another one"), nothing()]);
    let (reason, message) = ("TestChanged".to_owned(), "the pod is another one".to_owned());
    assert_eq!(advance_at(&mut plan, 1).await, Advance::Invalidated { reason, message });
    assert_eq!((plan.state, plan.finished_at), (PlanState::Superseded, Some(at(1))));
    assert_eq!(plan.tasks[1].state, TaskState::Pending);
    assert_eq!(advance_at(&mut plan, 2).await, Advance::Ended);
}

#[tokio::test]
async fn consecutive_transient_failures_are_counted() {
    let mut plan = plan_of(vec![say(Answer::Retry, "the API server is away")]);
    let mut seconds = 0;
    for attempts in 1..20 {
        let wait = backoff(&plan.tasks[0].id, attempts);
        assert_eq!(advance_at(&mut plan, seconds).await, Advance::Waiting { recheck_after: Some(wait) });
        assert_eq!((plan.tasks[0].attempts, plan.tasks[0].state), (attempts, TaskState::Running));
        assert_eq!(plan.tasks[0].message, "the API server is away");
        seconds += 60;
    }
    plan.tasks[0].params = json!({"answer": "Wait", "message": "waiting for the pod"});
    assert_eq!(advance_at(&mut plan, seconds).await, Advance::Waiting { recheck_after: None });
    assert_eq!((plan.tasks[0].attempts, plan.retry_at), (0, None));
}

#[tokio::test]
async fn panicking_task_is_recorded_and_retried_later() {
    for (with, said) in [
        ("Literal", "the task panicked: a bug"),
        ("Formatted", "the task panicked: a bug in test-panic"),
        ("NoText", "the task panicked"),
    ] {
        let mut plan = plan_of(vec![step("test-panic", json!({"with": with})), put_key("b")]);
        let wait = backoff(&plan.tasks[0].id, 1);
        assert_eq!(advance_at(&mut plan, 1).await, Advance::Waiting { recheck_after: Some(wait) });
        assert_eq!(
            (plan.state, states(&plan)),
            (PlanState::Active, vec![TaskState::Running, TaskState::Pending])
        );
        assert_eq!((plan.tasks[0].attempts, plan.tasks[0].message.as_str()), (1, said));
        let later = plan.retry_at.expect("it is tried again");
        assert_eq!(later, at(1) + TimeDelta::from_std(wait).unwrap());
        let _ = advance_at(&mut plan, 61).await;
        assert_eq!(plan.tasks[0].attempts, 2);
    }
    let mut plan = plan_of(vec![step("test-panic", json!({"with": "Long"}))]);
    let _ = advance_at(&mut plan, 1).await;
    let message = &plan.tasks[0].message;
    assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with("é…"), "{}", message.len());
}

#[test]
fn events_do_not_shorten_a_backoff() {
    let (world, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![say(Answer::Retry, "the API server is away")]);
    let mut now = at(0);
    for _ in 0..6_000 {
        let before = plan.clone();
        let runs = world.runs().len();
        let how = advance(&mut plan, &registry, &env, now, 600).now_or_never().unwrap();
        let Advance::Waiting { recheck_after: Some(left) } = how else { panic!("{how:?}") };
        assert_eq!(now + TimeDelta::from_std(left).unwrap(), plan.retry_at.unwrap());
        assert!(world.runs().len() > runs || plan == before, "a backoff changed the plan");
        now += TimeDelta::milliseconds(100);
    }
    let runs = world.runs().len();
    assert!((15..30).contains(&runs), "{runs} runs in ten minutes");
    // The clock is set back by an hour: what is left of the backoff is now longer than any backoff.
    now -= TimeDelta::hours(1);
    let _ = advance(&mut plan, &registry, &env, now, 600).now_or_never().unwrap();
    assert_eq!(world.runs().len(), runs + 1);
}

#[tokio::test]
async fn task_with_changed_progress_rests_at_most_two_seconds() {
    for (recheck, any_event, rest) in
        [(1, false, 1_000), (30, false, 2_000), (-1, false, 2_000), (0, false, 0), (30, true, 0)]
    {
        let (answers, case) = (json!(["Progress", "Progress", "Done"]), (recheck, any_event));
        let params = json!({"answers": answers, "recheck": recheck, "any_event": any_event});
        let mut plan = plan_of(vec![step("test-try", params)]);
        let (registry, env) = (Registry::new(), world().1);
        let waits = Advance::Waiting { recheck_after: u64::try_from(recheck).ok().map(Duration::from_secs) };
        let rest = TimeDelta::milliseconds(rest);
        let mut now = at(0);
        for runs in 1..=2 {
            assert_eq!(advance(&mut plan, &registry, &env, now, 600).await, waits, "{case:?}");
            assert_eq!(plan.tasks[0].progress, json!({"runs": runs}), "{case:?}");
            // What is stored is all that the next process knows.
            plan = Plan::from_value(&plan.to_value()).unwrap();
            now += rest;
            if rest > TimeDelta::zero() {
                let (rested, soon) = (plan.clone(), Duration::from_millis(1));
                let how = advance(&mut plan, &registry, &env, now - TimeDelta::milliseconds(1), 600).await;
                assert_eq!(how, Advance::Waiting { recheck_after: Some(soon) }, "{case:?}");
                assert_eq!(plan, rested, "{case:?}");
            }
        }
        assert_eq!(advance(&mut plan, &registry, &env, now, 600).await, Advance::Ended, "{case:?}");
        assert_eq!((plan.retry_at, plan.tasks[0].attempts), (None, 0));
    }
}

#[tokio::test]
async fn task_with_unchanged_progress_does_not_rest() {
    let mut plan = plan_of(vec![step("test-try", json!({"answers": ["Same"]}))]);
    let waits = Advance::Waiting { recheck_after: Some(Duration::from_secs(1)) };
    assert_eq!(advance_at(&mut plan, 0).await, waits);
    assert_eq!(plan.retry_at, None);
}

#[tokio::test]
async fn retry_after_can_lengthen_but_not_shorten_a_backoff() {
    for (attempts, asked, least, most) in
        [(0, 0, 500, 999), (0, 30, 30_000, 30_000), (0, 86_400, 600_000, 600_000), (9, 1, 30_000, 59_999)]
    {
        let params = json!({"answer": "Retry", "retryAfterSeconds": asked});
        let mut plan = plan_of(vec![step("test-say", params)]);
        plan.tasks[0].attempts = attempts;
        let Advance::Waiting { recheck_after: Some(wait) } = advance_at(&mut plan, 0).await else {
            panic!("it does not wait");
        };
        assert!((least..=most).contains(&wait.as_millis()), "{asked} s: {wait:?}");
    }
}

#[tokio::test]
async fn plan_without_tasks_fails_with_a_reason() {
    let mut plan = plan_of(vec![nothing()]);
    plan.tasks.clear();
    assert_eq!(advance_at(&mut plan, 1).await, Advance::Ended);
    assert_eq!(plan.state, PlanState::Failed);
    assert!(plan.failure.contains("has no tasks"), "{}", plan.failure);
}

#[tokio::test]
async fn plan_with_tasks_out_of_order_fails_without_running_any() {
    use TaskState::{Complete, Failed, Pending, Running, Skipped};
    for (found, in_order) in [
        ([Complete, Skipped, Running, Pending], true),
        ([Running, Skipped, Pending, Skipped], true),
        ([Pending, Complete, Pending, Pending], false),
        ([Complete, Running, Complete, Pending], false),
        ([Pending, Running, Pending, Pending], false),
        ([Running, Running, Pending, Pending], false),
        ([Complete, Failed, Pending, Pending], false),
    ] {
        let mut plan = plan_of(vec![put_key("a"), put_key("b"), put_key("c"), put_key("d")]);
        for (task, state) in plan.tasks.iter_mut().zip(found) {
            task.state = state;
        }
        let (world, env) = world();
        let _ = advance(&mut plan, &Registry::new(), &env, at(0), 600).await;
        assert_eq!(plan.is_active(), in_order, "{found:?}");
        assert_eq!(world.runs().len(), usize::from(in_order), "{found:?}");
        assert_eq!(plan.failure.contains("out of order"), !in_order);
    }
}

#[tokio::test]
async fn deadline_is_own_or_default_and_starts_at_the_first_run() {
    let (_, env) = world();
    let registry = Registry::new();
    let mut plan = plan_of(vec![say(Answer::Wait, "waiting")]);
    assert_eq!(next_deadline(&plan), None);
    for seconds in [10, 16] {
        let _ = advance_at(&mut plan, seconds).await;
        assert_eq!(next_deadline(&plan), Some(at(17)));
        assert_eq!(stalled(&plan, at(16)), None);
    }
    assert_eq!(stalled(&plan, at(17)), Some(&plan.tasks[0]));
    plan.state = PlanState::Aborted;
    assert_eq!((stalled(&plan, at(99)), next_deadline(&plan)), (None, None));

    let waits = step("test-put", json!({"key": "a", "waits": 99}));
    let mut plan = plan_of(vec![waits]);
    for (default, expected) in
        [(600, at(600)), (30, at(30)), (0, at(0)), (-5, at(0)), (i64::MAX, at(315_360_000))]
    {
        let _ = advance(&mut plan, &registry, &env, at(0), default).await;
        assert_eq!(next_deadline(&plan), Some(expected), "a default of {default} s");
    }
}

#[tokio::test]
async fn deadline_starts_after_the_allowed_wait() {
    let (_, env) = world();
    let waits = step("test-put", json!({"key": "a", "waits": 99}));
    let mut plan = plan_of(vec![waits]);
    for (not_before, expected) in
        [(None, at(100)), (Some(at(1_800)), at(1_900)), (Some(at(40)), at(140)), (Some(at(-5)), at(100))]
    {
        let deadline = Deadline { seconds: 100, not_before };
        let _ = advance(&mut plan, &Registry::new(), &env, at(0), deadline).await;
        assert_eq!(next_deadline(&plan), Some(expected), "{not_before:?}");
    }
    // A task with a deadline of its own has been given what it takes.
    let mut plan = plan_of(vec![say(Answer::Wait, "waiting")]);
    let deadline = Deadline { seconds: 100, not_before: Some(at(1_800)) };
    let _ = advance(&mut plan, &Registry::new(), &env, at(0), deadline).await;
    assert_eq!(next_deadline(&plan), Some(at(7)));
}

#[tokio::test]
async fn clock_set_back_does_not_extend_a_deadline() {
    let mut plan = plan_of(vec![say(Answer::Wait, "waiting")]);
    let _ = advance_at(&mut plan, 3_600).await;
    let _ = advance_at(&mut plan, 0).await;
    assert_eq!((plan.tasks[0].started_at, next_deadline(&plan)), (Some(at(0)), Some(at(7))));
}

#[tokio::test]
async fn status_messages_are_bounded() {
    let long = "é".repeat(5_000);
    for answer in [Answer::Wait, Answer::Fail, Answer::Retry, Answer::Invalidate] {
        let mut plan = plan_of(vec![say(answer, &long)]);
        plan.tasks[0].type_ = "test-say".to_owned();
        let _ = advance_at(&mut plan, 0).await;
        let message = &plan.tasks[0].message;
        assert!((MAX_MESSAGE_BYTES - 4..=MAX_MESSAGE_BYTES).contains(&message.len()), "{answer:?}");
        assert!(message.ends_with("é…"));
        assert!(plan.failure.len() <= MAX_FAILURE_BYTES);
    }
    let mut plan = plan_of(vec![nothing()]);
    plan.tasks[0].type_ = long;
    let _ = advance_at(&mut plan, 0).await;
    assert_eq!(plan.state, PlanState::Failed);
    assert!(plan.failure.len() <= MAX_FAILURE_BYTES && plan.tasks[0].message.len() <= MAX_MESSAGE_BYTES);
}

proptest! {
    #[test]
    fn only_too_long_text_is_cut_and_between_characters(text: String, max in 0_usize..40) {
        let short = cut(&text, max);
        prop_assert!(short.len() <= max);
        prop_assert_eq!(short == text, text.len() <= max);
        prop_assert!(text.starts_with(short.trim_end_matches('…')) || text.contains('…'));
    }

    #[test]
    fn backoff_doubles_within_bounds_and_is_deterministic(
        key in "[0-9a-f]{10}-[0-9]",
        attempts: u32,
    ) {
        for attempts in [attempts, attempts % 12] {
            let wait = backoff(&key, attempts);
            prop_assert_eq!(wait, backoff(&key, attempts));
            let doublings = attempts.saturating_sub(1).min(6);
            let least = Duration::from_millis(500 << doublings).min(Duration::from_secs(30));
            prop_assert!((least..least * 2).contains(&wait), "{} attempts: {:?}", attempts, wait);
        }
    }
}

#[test]
fn tasks_that_fail_together_retry_at_different_times() {
    let waits: std::collections::BTreeSet<_> =
        (0..100).map(|i| backoff(&format!("0123456789-{i}"), 4)).collect();
    assert!(waits.len() > 90, "{} different waits for 100 tasks", waits.len());
}

#[tokio::test]
async fn plan_can_be_advanced_from_a_spawned_task() {
    let ended = tokio::spawn(async { advance_at(&mut plan_of(vec![nothing()]), 0).await });
    assert_eq!(ended.await.unwrap(), Advance::Ended);
}
