//! The tasks of an evacuation.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::Event;

use crate::api::Reason;
use crate::planner::evacuate::{self, BATCH, COUNT, Evacuation, FAILED, MOVED, WORKFLOWS};
use crate::planner::routing::Next;
use crate::port::{BatchMove, BatchState, DescribedBatch, Missing, Temporal, TemporalError};
use crate::scope::{
    LATER, SOON, WorkerScope, due_unless_paused, outcome, recorded_time, wait_for, wait_out, wait_with,
};

/// Requeue after progress was written.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Requeue while a batch runs: Temporal moves 50 workflows a second by default.
const WHILE_MOVING: Duration = Duration::from_secs(2);
/// Requeue while another batch runs in the namespace.
const WHILE_TAKEN: Duration = Duration::from_secs(5);
/// The least time between two counts of the workflows that are left.
const BETWEEN_COUNTS: TimeDelta = TimeDelta::seconds(10);
/// A batch is stalled only after so many workflows for each second.
const SLOWEST: i64 = 10;
/// How long a version without workflows may take to drain, in seconds: it counts as drained after 15 minutes at most.
const DRAINS_IN: i64 = 1200;
/// Progress of the wait: the number of workflows that are left, and when Windlass counted them.
const LEFT: &str = "left";
const COUNTED_AT: &str = "countedAt";

/// Counts the workflows to move. A query that Temporal rejects fails here, before anything is changed.
#[derive(Debug, Deserialize, Serialize)]
pub struct CountWorkflows(Evacuation);

#[typetag::serde(name = "count-workflows")]
#[async_trait]
impl Task for CountWorkflows {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let temporal = match scope.temporal(cx) {
            Ok(temporal) => temporal,
            Err(outcome) => return Ok(outcome),
        };
        if cx.record.progress[WORKFLOWS].is_u64() {
            return Ok(Outcome::Done);
        }
        match temporal.count_pinned(&self.0.workflows(&scope.facts)).await {
            Ok(count) => {
                let message = format!("pinned workflows to move from {}: {count}", self.0.from);
                Ok(wait_with(cx, Reason::Evacuating, &message, AT_ONCE, &[(WORKFLOWS, json!(count))]))
            }
            Err(error @ TemporalError::Refused { .. }) => Err(TaskError::terminal(match &self.0.query {
                Some(query) => format!("could not count the workflows of the query {query:?}: {error}"),
                None => format!("could not count the workflows: {error}"),
            })),
            Err(error) => Ok(wait_out(cx, &error)),
        }
    }
}

/// Moves the workflows with one batch operation in Temporal. Its ID is derived from the task's: running the task again
/// starts no second batch.
#[derive(Debug, Deserialize, Serialize)]
pub struct MoveWorkflows(Evacuation);

#[typetag::serde(name = "move-workflows")]
#[async_trait]
impl Task for MoveWorkflows {
    fn policy(&self, env: &Env) -> Policy {
        let due = env.find::<WorkerScope>().map_or(Due::Default, |scope| {
            let facts = &scope.facts;
            let count = facts.status.evacuation.as_ref().and_then(|of| of.workflows).unwrap_or_default();
            Due::After(i64::from(facts.spec.progress_deadline_seconds) + count / SLOWEST)
        });
        Policy::default().unpaced().skippable().holding().due(due_unless_paused(env, due))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let temporal = match scope.temporal(cx) {
            Ok(temporal) => temporal,
            Err(outcome) => return Ok(outcome),
        };
        let counted = cx.plan.tasks.iter().find(|task| task.type_ == COUNT);
        if counted.is_some_and(|task| task.progress[WORKFLOWS] == 0) && cx.record.attempt == 0 {
            let message = format!("no pinned workflow runs on {}", self.0.from);
            return Ok(Outcome::Skipped { message });
        }
        let id = evacuate::job_id(cx.record);
        match temporal.describe_batch(&id).await {
            Ok(batch) => self.followed(cx, scope, &id, batch),
            // It was sent, and Temporal has forgotten it since: the next task counts what is left.
            Err(TemporalError::NotFound { what: Missing::Batch, .. })
                if cx.record.progress[BATCH].is_string() =>
            {
                Ok(Outcome::Done)
            }
            Err(TemporalError::NotFound { what: Missing::Batch, .. }) => {
                self.send(cx, scope, &**temporal, id).await
            }
            Err(error) => Ok(wait_out(cx, &error)),
        }
    }
}

impl MoveWorkflows {
    async fn send(
        &self,
        cx: &TaskContext<'_>,
        scope: &WorkerScope,
        temporal: &dyn Temporal,
        job_id: String,
    ) -> Result<Outcome, TaskError> {
        match evacuate::may_send(&scope.facts, &self.0) {
            Ok(Next::Done) => {}
            Ok(next) => return Ok(outcome(next, cx)),
            Err(sentence) => return Err(failed(cx, scope, sentence)),
        }
        let of = &scope.facts.deployment;
        let described = async {
            Ok((
                temporal.describe_version(of, &self.0.from).await?,
                temporal.describe_version(of, &self.0.to).await?,
            ))
        };
        match described.await {
            Ok((from, to)) => {
                if let Some(sentence) = evacuate::missing_task_queue(&self.0, &from, &to) {
                    return Err(failed(cx, scope, sentence));
                }
            }
            Err(error) => return Ok(wait_out(cx, &error)),
        }
        let Evacuation { from, to, .. } = &self.0;
        let batch = BatchMove {
            workflows: self.0.workflows(&scope.facts),
            to: to.clone(),
            reason: format!("Windlass moves workflows of {of} from {from} to {to} (plan {})", cx.plan.id),
            identity: scope.facts.identity.clone(),
            job_id,
        };
        match temporal.start_batch(&batch).await {
            Ok(()) => {
                let message = format!("batch {} moves the workflows from {from} to {to}", batch.job_id);
                Ok(wait_for(cx, Reason::Evacuating, &message, SOON))
            }
            Err(error @ TemporalError::TooManyBatches { .. }) => {
                let message = format!(
                    "waiting to move the workflows: {error}. Windlass starts its own when that one has ended"
                );
                Ok(wait_for(cx, Reason::Evacuating, &message, WHILE_TAKEN))
            }
            Err(error @ TemporalError::Refused { .. }) => {
                let message = format!("could not start batch {}: {error}", batch.job_id);
                Err(failed(cx, scope, message))
            }
            Err(error) => Ok(wait_out(cx, &error)),
        }
    }

    /// The outcome for a batch that exists. Its numbers are persisted before the task ends.
    fn followed(
        &self,
        cx: &TaskContext<'_>,
        scope: &WorkerScope,
        id: &str,
        batch: DescribedBatch,
    ) -> Result<Outcome, TaskError> {
        let Evacuation { from, to, .. } = &self.0;
        let new = [(BATCH, json!(id)), (MOVED, json!(batch.complete)), (FAILED, json!(batch.failed))];
        let is_new = new.iter().any(|(key, value)| cx.record.progress[key] != *value);
        if is_new || batch.state == BatchState::Running {
            let total = if batch.total > 0 { format!(" of {}", batch.total) } else { String::new() };
            let message = format!(
                "batch {id} has moved {}{total} workflows from {from} to {to}; Temporal counts them by the thousand",
                batch.complete
            );
            let after = if batch.state == BatchState::Running { WHILE_MOVING } else { AT_ONCE };
            return Ok(wait_with(cx, Reason::Evacuating, &message, after, &new));
        }
        match (batch.state, batch.failed) {
            (BatchState::Completed, 0) => Ok(Outcome::Done),
            (BatchState::Completed, count) => Err(failed(
                cx,
                scope,
                format!(
                    "batch {id} moved {} workflows to {to} and could not move {count}; to try these again, run windlass retry",
                    batch.complete
                ),
            )),
            (BatchState::Running | BatchState::Failed, _) => Err(failed(
                cx,
                scope,
                format!("batch {id} failed or was stopped in Temporal; to start another, run windlass retry"),
            )),
        }
    }
}

/// A failure that holds the plan, with its event.
fn failed(cx: &TaskContext<'_>, scope: &WorkerScope, message: String) -> TaskError {
    let cause = format!("{}/{}", cx.record.id, cx.record.attempt);
    scope.record_event(Event::warning(Reason::EvacuationFailed, cause, message.clone()));
    TaskError::terminal(message)
}

/// Waits until the version has drained. With a query, waits until it selects no workflow.
#[derive(Debug, Deserialize, Serialize)]
pub struct AwaitDrained(Evacuation);

#[typetag::serde(name = "await-drained")]
#[async_trait]
impl Task for AwaitDrained {
    fn policy(&self, env: &Env) -> Policy {
        let due = env.find::<WorkerScope>().map_or(Due::Default, |scope| {
            Due::After(i64::from(scope.facts.spec.progress_deadline_seconds).max(DRAINS_IN))
        });
        Policy::default().unpaced().skippable().holding().due(due)
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let temporal = match scope.temporal(cx) {
            Ok(temporal) => temporal,
            Err(outcome) => return Ok(outcome),
        };
        let (mut left, mut at) = counted(&cx.record.progress);
        if at.is_none_or(|at| at > cx.now || cx.now - at >= BETWEEN_COUNTS) {
            match temporal.count_pinned(&self.0.workflows(&scope.facts)).await {
                Ok(count) => (left, at) = (Some(count), Some(cx.now)),
                Err(error) => return Ok(wait_out(cx, &error)),
            }
        }
        match evacuate::await_drained(&scope.facts, &self.0, left, cx.now) {
            Ok(Next::Wait { reason, message, .. }) => {
                let more = [(LEFT, json!(left)), (COUNTED_AT, json!(at))];
                Ok(wait_with(cx, reason, &message, LATER, &more))
            }
            Ok(next) => Ok(outcome(next, cx)),
            Err(sentence) => Err(failed(cx, scope, sentence)),
        }
    }
}

fn counted(progress: &Value) -> (Option<u64>, Option<DateTime<Utc>>) {
    (progress[LEFT].as_u64(), recorded_time(progress, COUNTED_AT))
}
