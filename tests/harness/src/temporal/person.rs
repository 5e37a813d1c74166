//! A person with Temporal's command line: starts workflows, signals them, reads their results.

use std::time::Duration;

use serde_json::Value;
use windlass_clock::monotonic;
use windlass_temporal_grpc::{
    messages::temporal::api::{
        common::v1::{WorkflowExecution, WorkflowType},
        deployment::v1::WorkerDeploymentVersion,
        enums::v1::{HistoryEventFilterType, WorkflowTaskFailedCause},
        history::v1::history_event::Attributes,
        taskqueue::v1::TaskQueue,
        workflow::v1::{
            VersioningOverride,
            versioning_override::{Override, PinnedOverride, PinnedOverrideBehavior},
        },
        workflowservice::v1::{
            CountWorkflowExecutionsRequest, DeleteWorkerDeploymentVersionRequest,
            DescribeWorkflowExecutionRequest, GetWorkflowExecutionHistoryRequest, ListBatchOperationsRequest,
            SetWorkerDeploymentCurrentVersionRequest, SetWorkerDeploymentManagerRequest,
            SetWorkerDeploymentRampingVersionRequest, SignalWorkflowExecutionRequest,
            StartWorkflowExecutionRequest, set_worker_deployment_manager_request::NewManagerIdentity,
            workflow_service_client::WorkflowServiceClient,
        },
    },
    tonic::{Status, transport::Channel},
};

/// The workflow tasks of a workflow.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// How many its workers completed.
    pub completed: usize,
    /// Why others failed, for example on a history that the worker's code cannot replay. A task that would end the
    /// workflow while an event arrives is only repeated.
    pub failed: Vec<String>,
    /// The longest time from the schedule of a task until a worker completed it, or a repetition of it.
    pub longest_wait: Duration,
}

/// A person who works in the namespace `default`.
#[derive(Clone)]
pub struct Person {
    service: WorkflowServiceClient<Channel>,
}

impl Person {
    /// A person with this frontend.
    pub fn at(address: &str) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        Self { service: WorkflowServiceClient::new(endpoint.timeout(Duration::from_secs(30)).connect_lazy()) }
    }

    /// Starts a workflow, pinned to a version if one is named.
    pub async fn start(
        &self,
        kind: &str,
        id: &str,
        queue: &str,
        pinned: Option<(&str, &str)>,
    ) -> Result<(), Status> {
        let versioning_override = pinned.map(|(deployment, build)| VersioningOverride {
            r#override: Some(Override::Pinned(PinnedOverride {
                behavior: PinnedOverrideBehavior::Pinned.into(),
                version: Some(WorkerDeploymentVersion {
                    deployment_name: deployment.to_owned(),
                    build_id: build.to_owned(),
                }),
            })),
            ..Default::default()
        });
        let request = StartWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            workflow_id: id.to_owned(),
            request_id: id.to_owned(),
            workflow_type: Some(WorkflowType { name: kind.to_owned() }),
            task_queue: Some(TaskQueue { name: queue.to_owned(), ..Default::default() }),
            versioning_override,
            ..Default::default()
        };
        self.service.clone().start_workflow_execution(request).await.map(drop)
    }

    /// The build of a workflow's latest task, to which it is pinned; `None` before its first task is done.
    pub async fn build_of(&self, id: &str) -> Result<Option<String>, Status> {
        let request = DescribeWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            execution: Some(execution(id)),
        };
        let answer = self.service.clone().describe_workflow_execution(request).await?.into_inner();
        let versioning = answer.workflow_execution_info.and_then(|info| info.versioning_info);
        Ok(versioning.and_then(|versioning| versioning.deployment_version).map(|version| version.build_id))
    }

    /// The number of workflows that match a query.
    pub async fn count(&self, query: &str) -> Result<i64, Status> {
        let request =
            CountWorkflowExecutionsRequest { namespace: "default".to_owned(), query: query.to_owned() };
        Ok(self.service.clone().count_workflow_executions(request).await?.into_inner().count)
    }

    /// Lets a waiting workflow end.
    pub async fn let_go(&self, id: &str) -> Result<(), Status> {
        let request = SignalWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            workflow_execution: Some(execution(id)),
            signal_name: "go".to_owned(),
            ..Default::default()
        };
        self.service.clone().signal_workflow_execution(request).await.map(drop)
    }

    /// The result of a workflow: the build of its last step.
    ///
    /// # Panics If it fails, or does not end within a minute.
    pub async fn result(&self, id: &str) -> String {
        let until = monotonic() + Duration::from_mins(1);
        loop {
            match self.ending(id).await {
                Some(Attributes::WorkflowExecutionCompletedEventAttributes(completed)) => {
                    let payloads = completed.result.unwrap_or_default().payloads;
                    let data = payloads.first().map(|payload| payload.data.clone()).unwrap_or_default();
                    let said: Value = serde_json::from_slice(&data).unwrap_or_default();
                    return said.as_str().unwrap_or_default().to_owned();
                }
                Some(other) => panic!("the workflow {id} ended otherwise: {other:?}"),
                None => assert!(monotonic() < until, "the workflow {id} did not end within a minute"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The event that a workflow ended with, if it has.
    async fn ending(&self, id: &str) -> Option<Attributes> {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: "default".to_owned(),
            execution: Some(execution(id)),
            history_event_filter_type: HistoryEventFilterType::CloseEvent.into(),
            ..Default::default()
        };
        let answer = self.service.clone().get_workflow_execution_history(request).await.ok()?;
        let event = answer.into_inner().history?.events.pop()?;
        let attributes = event.attributes?;
        // A running workflow's latest event is there.
        matches!(
            attributes,
            Attributes::WorkflowExecutionCompletedEventAttributes(_)
                | Attributes::WorkflowExecutionFailedEventAttributes(_)
                | Attributes::WorkflowExecutionTimedOutEventAttributes(_)
                | Attributes::WorkflowExecutionTerminatedEventAttributes(_)
                | Attributes::WorkflowExecutionCanceledEventAttributes(_)
        )
        .then_some(attributes)
    }

    /// The job IDs of all batch operations.
    pub async fn batches(&self) -> Result<Vec<String>, Status> {
        let request = ListBatchOperationsRequest { namespace: "default".to_owned(), ..Default::default() };
        let answer = self.service.clone().list_batch_operations(request).await?.into_inner();
        Ok(answer.operation_info.into_iter().map(|info| info.job_id).collect())
    }

    /// The workflow tasks of a workflow.
    pub async fn tasks(&self, id: &str) -> Result<Tasks, Status> {
        let (mut tasks, mut since, mut next_page_token) = (Tasks::default(), None, Vec::new());
        loop {
            let request = GetWorkflowExecutionHistoryRequest {
                namespace: "default".to_owned(),
                execution: Some(execution(id)),
                next_page_token,
                ..Default::default()
            };
            let answer = self.service.clone().get_workflow_execution_history(request).await?.into_inner();
            for event in answer.history.unwrap_or_default().events {
                let time = event.event_time.unwrap_or_default();
                let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
                let at = Duration::from_secs(seconds(time.seconds))
                    + Duration::from_nanos(seconds(time.nanos.into()));
                match event.attributes {
                    Some(Attributes::WorkflowTaskScheduledEventAttributes(_)) => {
                        since.get_or_insert(at);
                    }
                    Some(Attributes::WorkflowTaskCompletedEventAttributes(_)) => {
                        tasks.completed += 1;
                        tasks.longest_wait =
                            tasks.longest_wait.max(at.saturating_sub(since.take().unwrap_or(at)));
                    }
                    Some(Attributes::WorkflowTaskFailedEventAttributes(failed))
                        if failed.cause() != WorkflowTaskFailedCause::UnhandledCommand =>
                    {
                        tasks.failed.push(format!("{:?}: {:?}", failed.cause(), failed.failure));
                    }
                    _ => {}
                }
            }
            next_page_token = answer.next_page_token;
            if next_page_token.is_empty() {
                return Ok(tasks);
            }
        }
    }

    /// Makes this identity the manager of a deployment; empty: removes the manager.
    pub async fn take_over(&self, deployment: &str, identity: &str) -> Result<(), Status> {
        let request = SetWorkerDeploymentManagerRequest {
            namespace: "default".to_owned(),
            deployment_name: deployment.to_owned(),
            identity: "a person".to_owned(),
            new_manager_identity: Some(NewManagerIdentity::ManagerIdentity(identity.to_owned())),
            ..Default::default()
        };
        self.service.clone().set_worker_deployment_manager(request).await.map(drop)
    }

    /// Makes a version without all task queues current, with the identity of the deployment's manager.
    pub async fn make_current(&self, deployment: &str, build: &str, identity: &str) -> Result<(), Status> {
        let request = SetWorkerDeploymentCurrentVersionRequest {
            namespace: "default".to_owned(),
            deployment_name: deployment.to_owned(),
            build_id: build.to_owned(),
            identity: identity.to_owned(),
            ignore_missing_task_queues: true,
            ..Default::default()
        };
        self.service.clone().set_worker_deployment_current_version(request).await.map(drop)
    }

    /// Deletes a version, also with workflows on it.
    pub async fn delete_version(&self, deployment: &str, build: &str, identity: &str) -> Result<(), Status> {
        let version =
            WorkerDeploymentVersion { deployment_name: deployment.to_owned(), build_id: build.to_owned() };
        let request = DeleteWorkerDeploymentVersionRequest {
            namespace: "default".to_owned(),
            deployment_version: Some(version),
            skip_drainage: true,
            identity: identity.to_owned(),
            ..Default::default()
        };
        self.service.clone().delete_worker_deployment_version(request).await.map(drop)
    }

    /// Sets the ramp, with the identity of the deployment's manager.
    pub async fn ramp(
        &self,
        deployment: &str,
        build: &str,
        percentage: f32,
        identity: &str,
    ) -> Result<(), Status> {
        let request = SetWorkerDeploymentRampingVersionRequest {
            namespace: "default".to_owned(),
            deployment_name: deployment.to_owned(),
            build_id: build.to_owned(),
            percentage,
            identity: identity.to_owned(),
            ..Default::default()
        };
        self.service.clone().set_worker_deployment_ramping_version(request).await.map(drop)
    }
}

fn execution(id: &str) -> WorkflowExecution {
    WorkflowExecution { workflow_id: id.to_owned(), run_id: String::new() }
}
