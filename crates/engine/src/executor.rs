//! Executes a plan: runs its tasks in order until one has to wait. It changes only the plan in memory; the caller
//! persists it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::env::Env;
use super::error::TaskError;
use super::id::{jitter, task_id};
use super::panics::caught;
use super::plan::{Plan, PlanState, TaskRecord, TaskState};
use super::registry::Registry;
use super::sentence::{MAX_FAILURE_BYTES, MAX_MESSAGE_BYTES, cut};
use super::task::{Due, Outcome, Task, TaskContext};

/// The shortest backoff, in milliseconds.
const BACKOFF_MIN_MS: u64 = 500;
/// The backoff stays below this, in milliseconds.
const BACKOFF_MAX_MS: u64 = 60_000;
/// The longest wait that a peer can ask for, in milliseconds.
const RETRY_AFTER_MAX_MS: u64 = 600_000;
/// How long a task rests at most after a run that changed its progress. An event that comes meanwhile waits no longer.
const REST_MAX: Duration = Duration::from_secs(2);
/// The longest deadline: ten years, in seconds. Every reader of the status can still parse the resulting time.
const DEADLINE_MAX_SECONDS: i64 = 315_360_000;

/// When a task without a deadline of its own counts as stalled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadline {
    /// So many seconds after it began, or after `not_before`, if that is later.
    pub seconds: i64,
    /// Until when what it waits for is given time that is not counted, if it is.
    pub not_before: Option<DateTime<Utc>>,
}

impl From<i64> for Deadline {
    fn from(seconds: i64) -> Self {
        Self { seconds, not_before: None }
    }
}

/// The result of advancing a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Advance {
    /// The plan is now Complete or Failed, or it had already ended.
    Ended,
    /// A task has to wait.
    Waiting {
        /// When to requeue if no event arrives first; `None` if an event will arrive.
        recheck_after: Option<Duration>,
    },
    /// A task is done that must not run again once a later task has acted: persist the plan, then call again.
    Checkpoint,
    /// The current task has failed and holds the plan until a retry, a skip, or the end of the plan.
    Held,
    /// The result of a completed task no longer holds; the plan is now Superseded.
    Invalidated {
        /// The reason for the history, in camel case.
        reason: String,
        /// What was found, in a sentence.
        message: String,
    },
}

/// Runs the tasks of an active plan, from the first that is neither Complete nor Skipped, until one has to wait or must
/// be persisted, or the plan ends. Changes nothing if the plan is not active, or while its current task backs off after
/// a transient error, or rests after a run that changed its progress: events arrive at any time and must not turn a
/// backoff
/// into a hot loop, and the write of the progress is an event itself.
///
/// A task without a deadline of its own counts as stalled after `default_deadline`. A change of this value applies at
/// once.
pub async fn advance(
    plan: &mut Plan,
    registry: &Registry,
    env: &Env,
    now: DateTime<Utc>,
    default_deadline: impl Into<Deadline>,
) -> Advance {
    let default_deadline = default_deadline.into();
    if !plan.is_active() {
        return Advance::Ended;
    }
    if let Err(why) = check_shape(plan, registry) {
        return end_failed(plan, now, &why);
    }
    if plan.current_task().is_some_and(|task| task.state == TaskState::Failed) {
        return Advance::Held;
    }
    if let Some(left) = backing_off(plan, now) {
        return Advance::Waiting { recheck_after: Some(left) };
    }
    for index in 0..plan.tasks.len() {
        if plan.tasks[index].state.is_over() {
            continue;
        }
        match step(plan, index, registry, env, now, default_deadline).await {
            Step::Next => {}
            Step::Persist if plan.current().is_none() => {}
            Step::Persist => return Advance::Checkpoint,
            Step::Stop(how) => return how,
        }
    }
    plan.state = PlanState::Complete;
    plan.finished_at = Some(now);
    tracing::debug!(plan = plan.id.as_str(), recipe = plan.recipe, "plan complete");
    Advance::Ended
}

enum Step {
    Next,
    Persist,
    Stop(Advance),
}

async fn step(
    plan: &mut Plan,
    index: usize,
    registry: &Registry,
    env: &Env,
    now: DateTime<Utc>,
    default_deadline: Deadline,
) -> Step {
    let task = match registry.resolve(&plan.tasks[index]) {
        Ok(task) => task,
        Err(why) => return Step::Stop(end_task_failed(plan, index, now, &why.to_string())),
    };
    plan.retry_at = None;
    let policy = task.policy(env);
    let due = match policy.due {
        Due::Default => Some(default_deadline),
        Due::After(seconds) => Some(seconds.into()),
        Due::Never => None,
    };
    begin(&mut plan.tasks[index], now, due);
    let answer = run(task.as_ref(), &TaskContext::new(env, now, plan, &plan.tasks[index])).await;
    let record = &mut plan.tasks[index];
    match answer {
        Ok(Outcome::Done) => {
            record.state = TaskState::Complete;
            record.finished_at = Some(now);
            record.message.clear();
            tracing::debug!(task = record.id, type_ = record.type_, "task complete");
            if policy.is_replayable { Step::Next } else { Step::Persist }
        }
        Ok(Outcome::Waiting { message, recheck_after }) => wait(record, &message, recheck_after),
        Ok(Outcome::Progress { message, recheck_after, progress }) => {
            if record.progress != progress && !policy.is_unpaced {
                let rest = recheck_after.map_or(REST_MAX, |after| after.min(REST_MAX));
                plan.retry_at = now.checked_add_signed(TimeDelta::milliseconds(rest.as_millis() as i64));
            }
            record.progress = progress;
            wait(record, &message, recheck_after)
        }
        Ok(Outcome::Skipped { message }) => {
            record.state = TaskState::Skipped;
            record.finished_at = Some(now);
            say(record, &message);
            Step::Persist
        }
        Ok(Outcome::Invalidated { reason, message }) => {
            say(record, &message);
            plan.state = PlanState::Superseded;
            plan.finished_at = Some(now);
            Step::Stop(Advance::Invalidated { reason, message: cut(&message, MAX_MESSAGE_BYTES) })
        }
        Err(TaskError::Terminal { message }) if policy.holds => {
            fail(record, now, &message);
            Step::Stop(Advance::Held)
        }
        Err(TaskError::Terminal { message }) => Step::Stop(end_task_failed(plan, index, now, &message)),
        Err(TaskError::Transient { message, retry_after }) => {
            record.attempts = record.attempts.saturating_add(1);
            say(record, &message);
            let asked = retry_after.unwrap_or_default().min(Duration::from_millis(RETRY_AFTER_MAX_MS));
            let wait = backoff(&record.id, record.attempts).max(asked);
            plan.retry_at = now.checked_add_signed(TimeDelta::milliseconds(wait.as_millis() as i64));
            Step::Stop(Advance::Waiting { recheck_after: Some(wait) })
        }
    }
}

/// Runs a task. A panic in it is a transient error. Otherwise one task would end the process and with it all other
/// plans,
/// and so would the next process, which reads the same plan. The plan is unchanged: only the outcomes of tasks change
/// it.
async fn run(task: &dyn Task, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
    caught("the task panicked", task.run(cx)).await.unwrap_or_else(|why| {
        tracing::error!(
            plan = cx.plan.id.as_str(),
            task = cx.record.id,
            type_ = cx.record.type_,
            why,
            "a task panicked; will retry"
        );
        Err(TaskError::transient(why))
    })
}

fn wait(record: &mut TaskRecord, message: &str, recheck_after: Option<Duration>) -> Step {
    // The run succeeded: the next transient error is counted as the first again.
    record.attempts = 0;
    say(record, message);
    Step::Stop(Advance::Waiting { recheck_after })
}

/// The wait after this many consecutive failures (1 is the first): from 0.5 s, doubling, below 60 s. The jitter is
/// derived from the key, so that a run can be replayed.
#[must_use]
pub fn backoff(key: &str, attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    let least = (BACKOFF_MIN_MS << doublings).min(BACKOFF_MAX_MS / 2);
    Duration::from_millis(least + jitter(key, attempts, least))
}

/// The current task of an active plan, if it is past its deadline.
#[must_use]
pub fn stalled(plan: &Plan, now: DateTime<Utc>) -> Option<&TaskRecord> {
    let task = plan.current_task().filter(|_| plan.is_active())?;
    let is_late = task.state != TaskState::Failed && task.deadline.is_some_and(|deadline| deadline <= now);
    is_late.then_some(task)
}

/// When the current task of an active plan counts as stalled. This may be in the past.
#[must_use]
pub fn next_deadline(plan: &Plan) -> Option<DateTime<Utc>> {
    plan.current_task().filter(|task| plan.is_active() && task.state != TaskState::Failed)?.deadline
}

/// Checks that this engine could have written the plan. A plan that was truncated or edited manually could run tasks
/// out of order, or complete without doing anything, and is not executed.
pub fn check_shape(plan: &Plan, registry: &Registry) -> Result<(), String> {
    if plan.tasks.is_empty() {
        return Err(format!("plan {} has no tasks, so it is not a valid plan", plan.id));
    }
    let current = plan.current().unwrap_or(plan.tasks.len());
    for (index, task) in plan.tasks.iter().enumerate() {
        if task.id != task_id(&plan.id, index) {
            return Err(format!("task {:?} at index {index} does not belong to plan {}", task.id, plan.id));
        }
        let in_order = match task.state {
            TaskState::Complete => index < current,
            TaskState::Running => index == current,
            TaskState::Pending | TaskState::Skipped => true,
            TaskState::Failed => {
                index == current && registry.resolve(task).is_ok_and(|task| task.policy(&Env::new()).holds)
            }
        };
        if !in_order {
            return Err(format!(
                "task {} is {:?}, which is out of order in an active plan",
                task.id, task.state
            ));
        }
    }
    Ok(())
}

/// The rest of the current task's backoff or pause. If it is longer than any backoff can be, it was written
/// before the clock was set back, and is ignored.
fn backing_off(plan: &Plan, now: DateTime<Utc>) -> Option<Duration> {
    let left = (plan.retry_at? - now).to_std().ok()?;
    (!left.is_zero() && left <= Duration::from_millis(RETRY_AFTER_MAX_MS)).then_some(left)
}

fn begin(record: &mut TaskRecord, now: DateTime<Utc>, deadline: Option<Deadline>) {
    record.state = TaskState::Running;
    // A start in the future was written before the clock was set back; the deadline would be late by that much. A task
    // that had no deadline and has one now starts its time now.
    let had_none = record.deadline.is_none() && deadline.is_some();
    let start = record.started_at.filter(|_| !had_none).map_or(now, |start| start.min(now));
    record.started_at = Some(start);
    let allowed = |seconds: i64| TimeDelta::seconds(seconds.clamp(0, DEADLINE_MAX_SECONDS));
    record.deadline = deadline.and_then(|deadline| {
        let since = deadline.not_before.map_or(start, |not_before| start.max(not_before));
        since.checked_add_signed(allowed(deadline.seconds))
    });
}

fn say(record: &mut TaskRecord, message: &str) {
    record.message = cut(message, MAX_MESSAGE_BYTES);
}

fn fail(record: &mut TaskRecord, now: DateTime<Utc>, why: &str) {
    record.state = TaskState::Failed;
    record.finished_at = Some(now);
    say(record, why);
}

fn end_task_failed(plan: &mut Plan, index: usize, now: DateTime<Utc>, why: &str) -> Advance {
    plan.retry_at = None;
    let record = &mut plan.tasks[index];
    fail(record, now, why);
    let failure = format!("task {} ({}) failed: {why}", record.type_, record.id);
    end_failed(plan, now, &failure)
}

fn end_failed(plan: &mut Plan, now: DateTime<Utc>, why: &str) -> Advance {
    plan.state = PlanState::Failed;
    plan.finished_at = Some(now);
    plan.failure = cut(why, MAX_FAILURE_BYTES);
    tracing::debug!(plan = plan.id.as_str(), recipe = plan.recipe, failure = plan.failure, "plan failed");
    Advance::Ended
}
