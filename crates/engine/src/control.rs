//! What is done to a plan from outside: another takes its place, a person stops it, skips one of its
//! tasks, or asks for another try.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::error::ResolveError;
use super::id::PlanId;
use super::plan::{Plan, PlanState, TaskRecord, TaskState};
use super::registry::Registry;
use super::seed::PlanSeed;

/// Ends an active plan because another takes its place; none of its tasks acts again. Whether it was
/// active: a plan that is over stays as it ended.
pub fn supersede(plan: &mut Plan, now: DateTime<Utc>) -> bool {
    end(plan, PlanState::Superseded, now)
}

/// Ends an active plan because a person asked for it; none of its tasks acts again. Whether it was
/// active: a plan that is over stays as it ended.
pub fn abort(plan: &mut Plan, now: DateTime<Utc>) -> bool {
    end(plan, PlanState::Aborted, now)
}

fn end(plan: &mut Plan, state: PlanState, now: DateTime<Utc>) -> bool {
    if !plan.is_active() {
        return false;
    }
    plan.state = state;
    plan.retry_at = None;
    plan.finished_at = Some(now);
    true
}

/// Why a task is not skipped.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SkipRefused {
    /// The plan has no such task.
    #[error("task {task_id} cannot be skipped: plan {plan_id} has no such task")]
    NoSuchTask {
        /// The task that was named.
        task_id: String,
        /// The plan that was looked into.
        plan_id: PlanId,
    },
    /// The plan is over.
    #[error("task {task_id} cannot be skipped: its plan is {state:?}")]
    PlanOver {
        /// The task.
        task_id: String,
        /// How the plan ended.
        state: PlanState,
    },
    /// The task is over.
    #[error("task {task_id} cannot be skipped: it is {state:?}")]
    TaskOver {
        /// The task.
        task_id: String,
        /// How it ended.
        state: TaskState,
    },
    /// Tasks of its type must be done.
    #[error("task {task_id} cannot be skipped: a task of type {type_} must be done")]
    NotSkippable {
        /// The task.
        task_id: String,
        /// Its type.
        type_: String,
    },
    /// What it is cannot be told.
    #[error("it cannot be told whether it may be skipped: {0}")]
    Unresolved(#[from] ResolveError),
}

/// Marks a task of an active plan, the current one or a later one, as skipped, if its type allows that.
/// A task that was skipped before stays so, without an error.
pub fn skip(
    plan: &mut Plan,
    task_id: &str,
    registry: &Registry,
    now: DateTime<Utc>,
) -> Result<(), SkipRefused> {
    let plan_state = plan.state;
    let current = plan.current_task().is_some_and(|task| task.id == task_id);
    let Some(record) = plan.tasks.iter_mut().find(|task| task.id == task_id) else {
        return Err(SkipRefused::NoSuchTask { task_id: task_id.to_owned(), plan_id: plan.id.clone() });
    };
    match record.state {
        TaskState::Skipped => return Ok(()),
        // One that failed and has its plan hold may be gone on without.
        TaskState::Failed if plan_state == PlanState::Active && current => {}
        state @ (TaskState::Complete | TaskState::Failed) => {
            return Err(SkipRefused::TaskOver { task_id: task_id.to_owned(), state });
        }
        TaskState::Pending | TaskState::Running => {}
    }
    if plan_state != PlanState::Active {
        return Err(SkipRefused::PlanOver { task_id: task_id.to_owned(), state: plan_state });
    }
    if !registry.resolve(record)?.skippable() {
        return Err(SkipRefused::NotSkippable { task_id: task_id.to_owned(), type_: record.type_.clone() });
    }
    record.state = TaskState::Skipped;
    record.finished_at = Some(now);
    "a person has skipped it".clone_into(&mut record.message);
    if current {
        plan.retry_at = None;
    }
    Ok(())
}

/// The task that has failed and has its active plan hold, if one has.
#[must_use]
pub fn held_by(plan: &Plan) -> Option<&TaskRecord> {
    plan.current_task().filter(|task| plan.is_active() && task.state == TaskState::Failed)
}

/// Has the task that failed run again, in the same plan, as a new attempt. Whether there was one.
pub fn try_again(plan: &mut Plan) -> bool {
    let Some(record) = held_task(plan) else { return false };
    record.state = TaskState::Pending;
    record.attempt = record.attempt.max(1).saturating_add(1);
    record.attempts = 0;
    record.progress = Value::Null;
    (record.started_at, record.finished_at, record.deadline) = (None, None, None);
    record.message.clear();
    plan.retry_at = None;
    true
}

/// Goes on without the task that failed; its message stays. Whether there was one.
pub fn pass_over(plan: &mut Plan) -> bool {
    let Some(record) = held_task(plan) else { return false };
    record.state = TaskState::Skipped;
    true
}

fn held_task(plan: &mut Plan) -> Option<&mut TaskRecord> {
    let current = plan.current().filter(|_| plan.is_active())?;
    plan.tasks.get_mut(current).filter(|task| task.state == TaskState::Failed)
}

/// What a plan is made of that tries again what this one failed to do: the next attempt at its target.
#[must_use]
pub fn retry_seed<'a>(plan: &'a Plan, uid: &'a str, now: DateTime<Utc>) -> PlanSeed<'a> {
    PlanSeed {
        uid,
        target_hash: &plan.target_hash,
        now,
        attempt: plan.attempt.saturating_add(1),
        disambiguator: plan.id.as_str(),
    }
}
