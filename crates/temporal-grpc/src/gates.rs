//! The workflows of gates: start, describe, terminate.

use std::collections::HashMap;

use serde_json::Value;
use temporalio_protos::temporal::api::{
    common::v1::{Payload, Payloads, WorkflowExecution, WorkflowType},
    enums::v1::{HistoryEventFilterType, WorkflowExecutionStatus, WorkflowIdReusePolicy},
    failure::v1::Failure,
    history::v1::history_event::Attributes,
    taskqueue::v1::TaskQueue,
    workflowservice::v1::{
        DescribeWorkflowExecutionRequest, GetWorkflowExecutionHistoryRequest, StartWorkflowExecutionRequest,
        TerminateWorkflowExecutionRequest,
    },
};
use tonic::Code;
use windlass_temporal::port::{GateStart, GateState, Identity, Missing, TemporalError};

use crate::batch::pinned_to;
use crate::client::{GrpcTemporal, Service};

impl GrpcTemporal {
    pub(crate) async fn start(&self, start: &GateStart) -> Result<(), TemporalError> {
        let request = StartWorkflowExecutionRequest {
            namespace: self.namespace.clone(),
            workflow_id: start.workflow_id.clone(),
            request_id: start.request_id.clone(),
            workflow_type: Some(WorkflowType { name: start.workflow_type.clone() }),
            task_queue: Some(TaskQueue { name: start.task_queue.clone(), ..Default::default() }),
            input: start.input.as_ref().map(payloads),
            workflow_execution_timeout: start.timeout.try_into().ok(),
            identity: start.identity.to_string(),
            workflow_id_reuse_policy: WorkflowIdReusePolicy::RejectDuplicate.into(),
            versioning_override: Some(pinned_to(&start.deployment, &start.build)),
            ..Default::default()
        };
        let started = self.ask(Missing::Version, async |mut service: Service| {
            match service.start_workflow_execution(request).await {
                // The workflow exists: it runs, or is closed.
                Err(status) if status.code() == Code::AlreadyExists => Ok(tonic::Response::new(None)),
                other => other.map(|answer| answer.map(Some)),
            }
        });
        started.await.map(drop)
    }

    pub(crate) async fn state_of(&self, workflow_id: &str) -> Result<GateState, TemporalError> {
        let request = DescribeWorkflowExecutionRequest {
            namespace: self.namespace.clone(),
            execution: Some(execution(workflow_id, "")),
        };
        let answer = self.ask(Missing::Workflow, async |mut service: Service| {
            service.describe_workflow_execution(request).await
        });
        let info = answer.await?.workflow_execution_info.unwrap_or_default();
        let run = info.execution.as_ref().map(|execution| execution.run_id.clone()).unwrap_or_default();
        Ok(match info.status() {
            WorkflowExecutionStatus::Completed => GateState::Completed,
            WorkflowExecutionStatus::TimedOut => GateState::TimedOut,
            WorkflowExecutionStatus::Failed
            | WorkflowExecutionStatus::Canceled
            | WorkflowExecutionStatus::Terminated => self.last_words(workflow_id, run).await?,
            _ => GateState::Running,
        })
    }

    /// The end of a workflow that did not complete, from the last event of its history.
    async fn last_words(&self, workflow_id: &str, run_id: String) -> Result<GateState, TemporalError> {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: self.namespace.clone(),
            execution: Some(execution(workflow_id, &run_id)),
            history_event_filter_type: HistoryEventFilterType::CloseEvent.into(),
            ..Default::default()
        };
        let answer = self.ask(Missing::Workflow, async |mut service: Service| {
            service.get_workflow_execution_history(request).await
        });
        let mut events = answer.await?.history.unwrap_or_default().events;
        Ok(match events.pop().and_then(|event| event.attributes) {
            Some(Attributes::WorkflowExecutionTerminatedEventAttributes(terminated)) => {
                GateState::Ended { message: terminated.reason }
            }
            Some(Attributes::WorkflowExecutionCanceledEventAttributes(_)) => {
                GateState::Ended { message: "cancelled".to_owned() }
            }
            Some(Attributes::WorkflowExecutionFailedEventAttributes(failed)) => {
                GateState::Failed { message: failed.failure.as_ref().map(words).unwrap_or_default() }
            }
            _ => GateState::Failed { message: String::new() },
        })
    }

    pub(crate) async fn terminate(
        &self,
        workflow_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        let request = TerminateWorkflowExecutionRequest {
            namespace: self.namespace.clone(),
            workflow_execution: Some(execution(workflow_id, "")),
            reason: reason.to_owned(),
            identity: identity.to_string(),
            ..Default::default()
        };
        let answer = self.ask(Missing::Workflow, async |mut service: Service| {
            service.terminate_workflow_execution(request).await
        });
        match answer.await {
            Err(TemporalError::NotFound { what: Missing::Workflow, .. }) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn execution(workflow_id: &str, run_id: &str) -> WorkflowExecution {
    WorkflowExecution { workflow_id: workflow_id.to_owned(), run_id: run_id.to_owned() }
}

/// A single argument in the encoding that every SDK reads.
fn payloads(input: &Value) -> Payloads {
    let metadata = HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]);
    let payload = Payload { metadata, data: input.to_string().into_bytes(), ..Default::default() };
    Payloads { payloads: vec![payload] }
}

/// The message of the innermost cause: the outer ones only report a failure.
fn words(failure: &Failure) -> String {
    let mut innermost = failure;
    while let Some(cause) = &innermost.cause {
        innermost = cause;
    }
    innermost.message.clone()
}
