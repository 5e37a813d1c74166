//! Runs a workflow on the wanted version, which has to succeed before the version takes tasks, or more of them.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Outcome, Task, TaskContext, TaskError, TaskRecord};

use crate::api::Reason;
use crate::events::Event;
use crate::planner::routing::PAUSED;
use crate::port::{GateStart, GateState, Missing, TaskQueueKind, Temporal, TemporalError};
use crate::scope::{LATER, WorkerScope, due, remembering, troubled, wait};

/// How long after its time-out a gate stands still.
const GRACE_SECONDS: i64 = 60;
/// Where it is written down which workflow is on which task queue.
const QUEUES: &str = "queues";
/// How soon a workflow is started after that.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Runs a workflow on the wanted version, once on each task queue. The workflow's ID is made of the task's: however often the
/// task is run, each workflow is started once.
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
        due(cx, Due::After(i64::from(self.timeout_seconds) + GRACE_SECONDS))
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
                let said = format!(
                    "waiting for workers of {} on a task queue of workflows",
                    scope.facts.target.build
                );
                return Ok(wait(cx, Reason::WaitingForPollers, &said, LATER));
            }
            Ok(queues) => queues,
            Err(error) => return Ok(troubled(cx, &error)),
        };
        // Workers may come to poll one queue after the other. Which workflow is whose is written down before one is started.
        let known = gated(cx.record);
        let new = queues.iter().filter(|queue| !known.contains(queue));
        let queues: Vec<String> = known.iter().chain(new).cloned().collect();
        if queues != known {
            let said = format!("gate {} is to run on {}", self.workflow_type, queues.join(", "));
            let more = [(QUEUES, json!(queues))];
            return Ok(remembering(cx, Reason::GateRunning, &said, AT_ONCE, &more));
        }
        let mut running = Vec::new();
        for (index, queue) in queues.iter().enumerate() {
            let id = workflow_id(cx.record, index);
            match self.look(scope, &*temporal, &id, queue).await {
                Ok(Look::Succeeded) => {}
                // That its time is up Temporal says: it began when it was started, whatever was waited for before that.
                Ok(Look::Runs) => running.push(format!("{id} on {queue}")),
                Ok(Look::Failed(message)) => {
                    let message = format!("gate {} failed on {queue} ({id}): {message}", self.workflow_type);
                    scope.tell(Event::warning("GateFailed", id, message.clone()));
                    return Ok(Outcome::Failed { message });
                }
                Ok(Look::Paused) => return Ok(wait(cx, Reason::Paused, PAUSED, LATER)),
                Err(error) => return Ok(troubled(cx, &error)),
            }
        }
        if running.is_empty() {
            return Ok(Outcome::Done);
        }
        let said = format!("waiting for gate {} to succeed: {}", self.workflow_type, running.join(", "));
        Ok(wait(cx, Reason::GateRunning, &said, Duration::from_secs(2)))
    }
}

enum Look {
    Succeeded,
    Runs,
    Paused,
    Failed(String),
}

/// The task queues that the task has begun with, in the order of their workflows' numbers.
fn gated(record: &TaskRecord) -> Vec<String> {
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

    async fn look(
        &self,
        scope: &WorkerScope,
        temporal: &dyn Temporal,
        id: &str,
        queue: &str,
    ) -> Result<Look, TemporalError> {
        match temporal.describe_gate(id).await {
            Ok(GateState::Running) => return Ok(Look::Runs),
            Ok(GateState::Completed) => return Ok(Look::Succeeded),
            Ok(GateState::Failed { message }) => return Ok(Look::Failed(message)),
            Ok(GateState::TimedOut) => {
                return Ok(Look::Failed(format!("it was not over in {} s", self.timeout_seconds)));
            }
            Ok(GateState::Ended { message }) => {
                return Ok(Look::Failed(format!("it was cancelled or terminated: {message}")));
            }
            Err(TemporalError::NotFound { what: Missing::Workflow, .. }) => {}
            Err(error) => return Err(error),
        }
        if scope.facts.spec.paused {
            return Ok(Look::Paused);
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
        temporal.start_gate(&start).await.map(|()| Look::Runs)
    }
}
