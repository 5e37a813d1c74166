//! Runs a workflow on the target. It must succeed before the version receives tasks, or a larger share of them.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError, TaskRecord};
use windlass_kube_port::Event;

use crate::api::{InputFrom, Reason};
use crate::inputs::{self, InputError};
use crate::planner::facts::reason_of;
use crate::planner::routing::PAUSED;
use crate::port::{GateStart, GateState, Missing, TaskQueueKind, Temporal, TemporalError};
use crate::scope::{
    LATER, SOON, WorkerScope, due_unless_paused, recorded_time, wait_for, wait_out, wait_with,
};

/// How long after its own time-out a gate counts as stalled, in seconds.
const GRACE_SECONDS: i64 = 60;
/// Progress: the task queues, in the order of their workflows.
const QUEUES: &str = "queues";
/// Progress: the task queue on which Temporal refuses to start the workflow, and since when.
const REFUSED: &str = "refused";
/// The longest wait between two attempts to start a workflow.
const BETWEEN_TRIES: Duration = Duration::from_secs(30);
/// Requeue after progress was written.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Runs a workflow on the target, once on each task queue. The workflow's ID is derived from the task's: running the
/// task again starts no second workflow.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RunGate {
    workflow_type: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    task_queues: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// Only the reference: the plan is in the status, which more people may read than the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_from: Option<InputFrom>,
    timeout_seconds: u32,
}

/// The ID of a gate's workflow.
#[must_use]
pub fn workflow_id(record: &TaskRecord, index: usize) -> String {
    format!("windlass-gate-{}-{}-{index}", record.id, record.attempt.max(1))
}

#[typetag::serde(name = "run-gate")]
#[async_trait]
impl Task for RunGate {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default()
            .unpaced()
            .skippable()
            .holding()
            .due(due_unless_paused(env, Due::After(i64::from(self.timeout_seconds) + GRACE_SECONDS)))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let temporal = match scope.temporal(cx) {
            Ok(temporal) => temporal.clone(),
            Err(outcome) => return Ok(outcome),
        };
        let queues = match self.queues(scope, &*temporal).await {
            Ok(queues) if queues.is_empty() => {
                let message = format!(
                    "waiting for workers of {} to poll a workflow task queue",
                    scope.facts.target.build
                );
                return Ok(wait_for(cx, Reason::WaitingForPollers, &message, LATER));
            }
            Ok(queues) => queues,
            Err(error) => return Ok(wait_out(cx, &error)),
        };
        // More queues may appear while workers start. Persist the assignment of workflows to queues before starting
        // any.
        let assigned = assigned_queues(cx.record);
        let new = queues.iter().filter(|queue| !assigned.contains(queue));
        let queues: Vec<String> = assigned.iter().chain(new).cloned().collect();
        if queues != assigned {
            let message = format!("starting gate {} on {}", self.workflow_type, queues.join(", "));
            let more = [(QUEUES, json!(queues))];
            return Ok(wait_with(cx, Reason::GateRunning, &message, AT_ONCE, &more));
        }
        let mut running = Vec::new();
        for (index, queue) in queues.iter().enumerate() {
            let id = workflow_id(cx.record, index);
            match self.gate_status(scope, &*temporal, &id, queue).await {
                Ok(GateStatus::Succeeded) => {}
                // Temporal enforces the time-out: it counts from the workflow's start, not from the task's.
                Ok(GateStatus::Running) => running.push(format!("{id} on {queue}")),
                Ok(GateStatus::Failed(message)) => {
                    let message = format!("gate {} failed on {queue} ({id}): {message}", self.workflow_type);
                    scope.record_event(Event::warning(Reason::GateFailed, id, message.clone()));
                    return Err(TaskError::terminal(message));
                }
                Ok(GateStatus::Paused) => {
                    // The time of a pause does not count.
                    let more = [(REFUSED, Value::Null)];
                    let is_refused = !cx.record.progress[REFUSED].is_null();
                    let more = if is_refused { more.as_slice() } else { Default::default() };
                    return Ok(wait_with(cx, Reason::Paused, PAUSED, LATER, more));
                }
                Ok(GateStatus::Unread(message)) => {
                    return Ok(wait_for(cx, Reason::GateRunning, &message, LATER));
                }
                Ok(GateStatus::Refused { reason, message }) => {
                    let outcome = self.not_started(cx, queue, reason, &message);
                    if let Err(TaskError::Terminal { message }) = &outcome {
                        scope.record_event(Event::warning(Reason::GateFailed, id, message.clone()));
                    }
                    return outcome;
                }
                Err(error) => return Ok(wait_out(cx, &error)),
            }
        }
        if running.is_empty() {
            return Ok(Outcome::Done);
        }
        let message = format!("waiting for gate {} to succeed: {}", self.workflow_type, running.join(", "));
        Ok(wait_for(cx, Reason::GateRunning, &message, Duration::from_secs(2)))
    }
}

enum GateStatus {
    Succeeded,
    Running,
    Paused,
    Failed(String),
    /// It was never started, and the API server does not return its input.
    Unread(String),
    /// It was never started, because its input is invalid or Temporal refuses to start it.
    Refused {
        reason: Reason,
        message: String,
    },
}

/// The reason in the status while Temporal refuses to start a gate.
fn reason_of_refusal(error: &TemporalError) -> Reason {
    match reason_of(error) {
        Reason::Applying | Reason::WaitingForPollers | Reason::TemporalUnreachable => Reason::GateRunning,
        reason => reason,
    }
}

/// True if Temporal rejected the start of the workflow. A later attempt may succeed if the version or the task queue
/// is new.
fn is_refusal(error: &TemporalError) -> bool {
    match error {
        TemporalError::Refused { .. }
        | TemporalError::VersionNotReady { .. }
        | TemporalError::NotFound { .. }
        | TemporalError::NoPollers { .. }
        | TemporalError::CredentialsInvalid { .. } => true,
        TemporalError::RateLimited { .. }
        | TemporalError::Unreachable { .. }
        | TemporalError::SecretNotFound { .. }
        | TemporalError::Unresolved { .. }
        | TemporalError::Conflict { .. }
        | TemporalError::OwnedByOther { .. }
        | TemporalError::MissingTaskQueues { .. }
        | TemporalError::VersionHasPollers { .. }
        | TemporalError::VersionDraining { .. }
        | TemporalError::VersionRouted { .. }
        | TemporalError::TooManyBatches { .. } => false,
    }
}

/// The task queues that the task has assigned, in the order of their workflows' numbers.
fn assigned_queues(record: &TaskRecord) -> Vec<String> {
    serde_json::from_value(record.progress[QUEUES].clone()).unwrap_or_default()
}

impl RunGate {
    /// Waits for a workflow that cannot be started, with growing delays, and fails after the gate's time-out: a task queue
    /// may be misspelled, and a workflow that does not start has no time-out.
    fn not_started(
        &self,
        cx: &TaskContext<'_>,
        queue: &str,
        reason: Reason,
        error: &str,
    ) -> Result<Outcome, TaskError> {
        // A time in the future was written before the clock was set back.
        let before = Some(&cx.record.progress[REFUSED]).filter(|refused| refused["queue"] == queue);
        let since = before.and_then(|refused| recorded_time(refused, "since"));
        let since = since.map_or(cx.now, |since| since.min(cx.now));
        let patience = Duration::from_secs(u64::from(self.timeout_seconds));
        let waited = (cx.now - since).to_std().unwrap_or_default();
        if waited >= patience {
            let message = format!(
                "could not start gate {} on {queue} for {} s: {error}",
                self.workflow_type, self.timeout_seconds
            );
            return Err(TaskError::terminal(message));
        }
        let message = format!("could not start gate {} on {queue}; retrying: {error}", self.workflow_type);
        let after = (waited / 4).clamp(SOON, BETWEEN_TRIES).min(patience.saturating_sub(waited));
        Ok(wait_with(cx, reason, &message, after, &[(REFUSED, json!({"queue": queue, "since": since}))]))
    }

    async fn queues(
        &self,
        scope: &WorkerScope,
        temporal: &dyn Temporal,
    ) -> Result<Vec<String>, TemporalError> {
        if !self.task_queues.is_empty() {
            return Ok(self.task_queues.clone());
        }
        let facts = &scope.facts;
        let described = temporal.describe_version(&facts.deployment, &facts.target.build).await?;
        let queues = described.task_queues.into_iter().filter(|queue| queue.kind == TaskQueueKind::Workflow);
        let mut names: Vec<String> = queues.map(|queue| queue.name).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn gate_status(
        &self,
        scope: &WorkerScope,
        temporal: &dyn Temporal,
        id: &str,
        queue: &str,
    ) -> Result<GateStatus, TemporalError> {
        match temporal.describe_gate(id).await {
            Ok(GateState::Running) => return Ok(GateStatus::Running),
            Ok(GateState::Completed) => return Ok(GateStatus::Succeeded),
            Ok(GateState::Failed { message }) => return Ok(GateStatus::Failed(message)),
            Ok(GateState::TimedOut) => {
                return Ok(GateStatus::Failed(format!(
                    "it did not complete within {} s",
                    self.timeout_seconds
                )));
            }
            Ok(GateState::Ended { message }) => {
                return Ok(GateStatus::Failed(format!("it was cancelled or terminated: {message}")));
            }
            Err(TemporalError::NotFound { what: Missing::Workflow, .. }) => {}
            Err(error) => return Err(error),
        }
        if scope.facts.spec.paused {
            return Ok(GateStatus::Paused);
        }
        let facts = &scope.facts;
        let input = match &self.input_from {
            None => self.input.clone(),
            Some(from) => match inputs::read(&*scope.cluster, &facts.namespace, from).await {
                Ok(input) => Some(input),
                Err(InputError::Unread(message)) => return Ok(GateStatus::Unread(message)),
                Err(InputError::Invalid(message)) => {
                    return Ok(GateStatus::Refused { reason: Reason::GateRunning, message });
                }
            },
        };
        let start = GateStart {
            deployment: facts.deployment.clone(),
            build: facts.target.build.clone(),
            workflow_id: id.to_owned(),
            request_id: id.to_owned(),
            workflow_type: self.workflow_type.clone(),
            task_queue: queue.to_owned(),
            input,
            timeout: Duration::from_secs(u64::from(self.timeout_seconds)),
            identity: facts.identity.clone(),
        };
        match temporal.start_gate(&start).await {
            Err(error) if is_refusal(&error) => {
                Ok(GateStatus::Refused { reason: reason_of_refusal(&error), message: error.to_string() })
            }
            started => started.map(|()| GateStatus::Running),
        }
    }
}
