//! Batch operations: start, describe, stop, and the count of their workflows.

use temporalio_protos::temporal::api::{
    batch::v1::BatchOperationUpdateWorkflowExecutionOptions,
    enums::v1::BatchOperationState,
    workflow::v1::{
        VersioningOverride, WorkflowExecutionOptions,
        versioning_override::{Override, PinnedOverride, PinnedOverrideBehavior},
    },
    workflowservice::v1::{
        CountWorkflowExecutionsRequest, DescribeBatchOperationRequest, StartBatchOperationRequest,
        StopBatchOperationRequest, start_batch_operation_request::Operation,
    },
};
use tonic::Code;
use windlass_temporal::port::{
    BatchMove, BatchState, BuildId, DeploymentName, DescribedBatch, Identity, Missing, TemporalError,
};

use crate::client::{GrpcTemporal, Service, version};

/// The override that pins a workflow to a version.
pub(crate) fn pinned_to(deployment: &DeploymentName, build: &BuildId) -> VersioningOverride {
    let pinned = PinnedOverride {
        behavior: PinnedOverrideBehavior::Pinned.into(),
        version: Some(version(deployment, build)),
    };
    VersioningOverride { r#override: Some(Override::Pinned(pinned)), ..Default::default() }
}

impl GrpcTemporal {
    pub(crate) async fn count_query(&self, query: String) -> Result<u64, TemporalError> {
        let request = CountWorkflowExecutionsRequest { namespace: self.namespace.clone(), query };
        let counted = self.ask(Missing::Namespace, async |mut service: Service| {
            service.count_workflow_executions(request).await
        });
        Ok(u64::try_from(counted.await?.count).unwrap_or_default())
    }

    pub(crate) async fn start_move(&self, batch: &BatchMove) -> Result<(), TemporalError> {
        let options = WorkflowExecutionOptions {
            versioning_override: Some(pinned_to(&batch.workflows.deployment, &batch.to)),
            ..Default::default()
        };
        let mut operation = BatchOperationUpdateWorkflowExecutionOptions {
            identity: batch.identity.to_string(),
            workflow_execution_options: Some(options),
            ..Default::default()
        };
        operation.update_mask.get_or_insert_default().paths.push("versioning_override".to_owned());
        let request = StartBatchOperationRequest {
            namespace: self.namespace.clone(),
            visibility_query: batch.workflows.visibility_query(),
            job_id: batch.job_id.clone(),
            reason: batch.reason.clone(),
            operation: Some(Operation::UpdateWorkflowOptionsOperation(operation)),
            ..Default::default()
        };
        let started = self.ask(Missing::Namespace, async |mut service: Service| {
            match service.start_batch_operation(request).await {
                // The batch exists: it runs, or has ended.
                Err(status) if status.code() == Code::AlreadyExists => Ok(tonic::Response::new(None)),
                other => other.map(|answer| answer.map(Some)),
            }
        });
        started.await.map(drop)
    }

    pub(crate) async fn batch(&self, job_id: &str) -> Result<DescribedBatch, TemporalError> {
        let request =
            DescribeBatchOperationRequest { namespace: self.namespace.clone(), job_id: job_id.to_owned() };
        let answer = self.ask(Missing::Batch, async |mut service: Service| {
            service.describe_batch_operation(request).await
        });
        let answer = answer.await?;
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(DescribedBatch {
            state: match answer.state() {
                BatchOperationState::Completed => BatchState::Completed,
                BatchOperationState::Failed => BatchState::Failed,
                BatchOperationState::Running | BatchOperationState::Unspecified => BatchState::Running,
            },
            total: count(answer.total_operation_count),
            complete: count(answer.complete_operation_count),
            failed: count(answer.failure_operation_count),
        })
    }

    pub(crate) async fn stop(
        &self,
        job_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        let request = StopBatchOperationRequest {
            namespace: self.namespace.clone(),
            job_id: job_id.to_owned(),
            reason: reason.to_owned(),
            identity: identity.to_string(),
        };
        let answer = self
            .ask(Missing::Batch, async |mut service: Service| service.stop_batch_operation(request).await);
        match answer.await {
            Err(TemporalError::NotFound { what: Missing::Batch, .. }) => Ok(()),
            other => other.map(drop),
        }
    }
}
