//! Operations on a plan from outside the executor: supersede or abort it, skip one of its tasks, retry a failed task.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::env::Env;
use super::error::ResolveError;
use super::executor::stalled;
use super::id::PlanId;
use super::plan::{Plan, PlanState, TaskRecord, TaskState};
use super::registry::Registry;
use super::seed::PlanSeed;

/// Ends an active plan as Superseded because another plan replaces it; none of its tasks runs again. Returns false, and
/// changes nothing, if the plan has already ended.
pub fn supersede(plan: &mut Plan, now: DateTime<Utc>) -> bool {
    end(plan, PlanState::Superseded, now)
}

/// Ends an active plan as Aborted at a user's request; none of its tasks runs again. Returns false, and changes
/// nothing, if the plan has already ended.
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

/// Why a task cannot be skipped.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SkipRefused {
    /// The plan has no such task.
    #[error("task {task_id} cannot be skipped: plan {plan_id} has no such task")]
    NoSuchTask {
        /// The requested task.
        task_id: String,
        /// The plan's ID.
        plan_id: PlanId,
    },
    /// The plan has ended.
    #[error("task {task_id} cannot be skipped: its plan is {state:?}")]
    PlanOver {
        /// The task.
        task_id: String,
        /// How the plan ended.
        state: PlanState,
    },
    /// The task has ended.
    #[error("task {task_id} cannot be skipped: it is {state:?}")]
    TaskOver {
        /// The task.
        task_id: String,
        /// Its final state.
        state: TaskState,
    },
    /// Tasks of this type cannot be skipped.
    #[error("task {task_id} cannot be skipped: tasks of type {type_} are not skippable")]
    NotSkippable {
        /// The task.
        task_id: String,
        /// Its type.
        type_: String,
    },
    /// The task's type or params cannot be resolved.
    #[error("could not determine whether the task can be skipped: {0}")]
    Unresolved(#[from] ResolveError),
}

/// Marks the current task of an active plan, or a later one, as Skipped if its type allows that. Skipping a skipped
/// task again succeeds and changes nothing.
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
        // A failed task that holds its plan may be skipped.
        TaskState::Failed if plan_state == PlanState::Active && current => {}
        state @ (TaskState::Complete | TaskState::Failed) => {
            return Err(SkipRefused::TaskOver { task_id: task_id.to_owned(), state });
        }
        TaskState::Pending | TaskState::Running => {}
    }
    if plan_state != PlanState::Active {
        return Err(SkipRefused::PlanOver { task_id: task_id.to_owned(), state: plan_state });
    }
    if !registry.resolve(record)?.policy(&Env::new()).is_skippable {
        return Err(SkipRefused::NotSkippable { task_id: task_id.to_owned(), type_: record.type_.clone() });
    }
    record.state = TaskState::Skipped;
    record.finished_at = Some(now);
    "skipped by a user".clone_into(&mut record.message);
    if current {
        plan.retry_at = None;
    }
    Ok(())
}

/// The failed task that holds an active plan, if there is one.
#[must_use]
pub fn held_by(plan: &Plan) -> Option<&TaskRecord> {
    plan.current_task().filter(|task| plan.is_active() && task.state == TaskState::Failed)
}

/// Resets the failed task that holds the plan, so that it runs again in the same plan as a new attempt. Returns false
/// if no task holds the plan.
pub fn try_again(plan: &mut Plan) -> bool {
    held_by(plan).is_some() && begin_again(plan)
}

/// Resets the current task if it is past its deadline, so that it runs again in the same plan as a new attempt. Returns
/// false if the plan is not stalled.
pub fn restart_stalled(plan: &mut Plan, now: DateTime<Utc>) -> bool {
    stalled(plan, now).is_some() && begin_again(plan)
}

fn begin_again(plan: &mut Plan) -> bool {
    let Some(record) = plan.current().and_then(|current| plan.tasks.get_mut(current)) else { return false };
    record.state = TaskState::Pending;
    record.attempt = record.attempt.max(1).saturating_add(1);
    record.attempts = 0;
    record.progress = Value::Null;
    (record.started_at, record.finished_at, record.deadline) = (None, None, None);
    record.message.clear();
    plan.retry_at = None;
    true
}

/// Marks the failed task that holds the plan as Skipped, so that the plan continues; the task's message stays. Returns
/// false if no task holds the plan.
pub fn pass_over(plan: &mut Plan) -> bool {
    let Some(record) = held_task(plan) else { return false };
    record.state = TaskState::Skipped;
    true
}

fn held_task(plan: &mut Plan) -> Option<&mut TaskRecord> {
    let current = plan.current().filter(|_| plan.is_active())?;
    plan.tasks.get_mut(current).filter(|task| task.state == TaskState::Failed)
}

/// The seed of a plan that retries this one: the next attempt at the same target.
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
