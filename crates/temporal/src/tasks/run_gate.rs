//! Runs a workflow on the target, which has to succeed before the version gets tasks, or more of them.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Outcome, Task, TaskContext, TaskError, TaskRecord};

use crate::api::Reason;
use crate::events::Event;
use crate::planner::routing::PAUSED;
use crate::port::{GateStart, GateState, Missing, TaskQueueKind, Temporal, TemporalError};
use crate::scope::{LATER, WorkerScope, due_unless_paused, wait_for, wait_out, wait_with};

/// How long after its own time-out a gate counts as stalled, in seconds.
const GRACE_SECONDS: i64 = 60;
/// Progress: the task queues, in the order of their workflows.
const QUEUES: &str = "queues";
/// Requeue after that progress was written.
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
    fn due(&self, cx: &TaskContext<'_>) -> Due {
        due_unless_paused(cx, Due::After(i64::from(self.timeout_seconds) + GRACE_SECONDS))
    }

    fn holds(&self) -> bool {
        true
    }

    fn skippable(&self) -> bool {
        true
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
                    "waiting for workers of {} on a task queue of workflows",
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
            let message = format!("gate {} is to run on {}", self.workflow_type, queues.join(", "));
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
                    return Ok(Outcome::Failed { message });
                }
                Ok(GateStatus::Paused) => return Ok(wait_for(cx, Reason::Paused, PAUSED, LATER)),
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
}

/// The task queues that the task has assigned, in the order of their workflows' numbers.
fn assigned_queues(record: &TaskRecord) -> Vec<String> {
    serde_json::from_value(record.progress[QUEUES].clone()).unwrap_or_default()
}

impl RunGate {
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
                return Ok(GateStatus::Failed(format!("it was not over in {} s", self.timeout_seconds)));
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
        let start = GateStart {
            deployment: facts.deployment.clone(),
            build: facts.target.build.clone(),
            workflow_id: id.to_owned(),
            request_id: id.to_owned(),
            workflow_type: self.workflow_type.clone(),
            task_queue: queue.to_owned(),
            input: self.input.clone(),
            timeout: Duration::from_secs(u64::from(self.timeout_seconds)),
            identity: facts.identity.clone(),
        };
        temporal.start_gate(&start).await.map(|()| GateStatus::Running)
    }
}
