//! A client of one namespace of one Temporal server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use temporalio_protos::temporal::api::{
    deployment::v1::WorkerDeploymentVersion,
    taskqueue::v1 as queues,
    workflowservice::v1::{
        DeleteWorkerDeploymentRequest, DeleteWorkerDeploymentVersionRequest, DescribeTaskQueueRequest,
        DescribeWorkerDeploymentRequest, DescribeWorkerDeploymentVersionRequest,
        SetWorkerDeploymentCurrentVersionRequest, SetWorkerDeploymentManagerRequest,
        SetWorkerDeploymentRampingVersionRequest, set_worker_deployment_manager_request::NewManagerIdentity,
        workflow_service_client::WorkflowServiceClient,
    },
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::{Interceptor, interceptor::InterceptedService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use windlass_temporal::port::{
    BatchMove, BuildId, ConflictToken, DeploymentName, DescribedBatch, DescribedDeployment, DescribedVersion,
    GateStart, GateState, Guard, Identity, Missing, Percent, PinnedWorkflows, Pollers, RoutingWrite,
    RunningWorkflows, TaskQueue, Temporal, TemporalError, running_query,
};

use crate::channel::REQUEST_TIMEOUT;
use crate::pace::Pace;
use crate::{read, refusals};

/// Temporal's service, with credentials.
pub(crate) type Service = WorkflowServiceClient<InterceptedService<Channel, Credentials>>;

/// The metadata of each request.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    bearer: Option<MetadataValue<Ascii>>,
    namespace: Option<MetadataValue<Ascii>>,
}

impl Credentials {
    pub(crate) fn new(api_key: Option<&str>, namespace: &str) -> Self {
        let bearer = api_key.and_then(|key| format!("Bearer {key}").parse().ok()).map(
            |mut value: MetadataValue<_>| {
                value.set_sensitive(true);
                value
            },
        );
        // Temporal Cloud needs it to find the API key's namespace.
        let namespace = bearer.is_some().then(|| namespace.parse().ok()).flatten();
        Self { bearer, namespace }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        if let Some(bearer) = &self.bearer {
            metadata.insert("authorization", bearer.clone());
        }
        if let Some(namespace) = &self.namespace {
            metadata.insert("temporal-namespace", namespace.clone());
        }
        Ok(request)
    }
}

/// A client of one namespace.
#[derive(Clone)]
pub(crate) struct GrpcTemporal {
    service: Service,
    pub(crate) namespace: String,
    pace: Arc<Pace>,
    /// Set when the server rejected the credentials: the cached Secrets may be stale.
    refused: Arc<AtomicBool>,
}

impl GrpcTemporal {
    pub(crate) fn new(
        channel: Channel,
        credentials: Credentials,
        namespace: &str,
        pace: Arc<Pace>,
        refused: Arc<AtomicBool>,
    ) -> Self {
        let service = WorkflowServiceClient::with_interceptor(channel, credentials);
        Self { service, namespace: namespace.to_owned(), pace, refused }
    }

    /// Sends a request, rate-limited, with a time-out of 10 s.
    pub(crate) async fn ask<A>(
        &self,
        about: Missing,
        call: impl AsyncFnOnce(Service) -> Result<Response<A>, Status>,
    ) -> Result<A, TemporalError> {
        self.pace.turn().await?;
        let answer =
            tokio::time::timeout(REQUEST_TIMEOUT, call(self.service.clone())).await.map_err(|_| {
                TemporalError::Unreachable {
                    message: format!("the server did not answer within {} s", REQUEST_TIMEOUT.as_secs()),
                }
            })?;
        let answer = answer.map(Response::into_inner).map_err(|status| refusals::of(&status, about));
        let refused = matches!(answer, Err(TemporalError::CredentialsInvalid { .. }));
        if refused || answer.is_ok() {
            self.refused.store(refused, Ordering::Relaxed);
        }
        answer
    }

    async fn ramp(
        &self,
        deployment: &DeploymentName,
        to: Option<&BuildId>,
        percent: Percent,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        let request = SetWorkerDeploymentRampingVersionRequest {
            namespace: self.namespace.clone(),
            deployment_name: deployment.to_string(),
            build_id: to.map(ToString::to_string).unwrap_or_default(),
            percentage: percent.0,
            conflict_token: guard.token.as_bytes().to_vec(),
            identity: guard.identity.to_string(),
            ..Default::default()
        };
        let answer = self.ask(missing_of(to), async |mut service: Service| {
            service.set_worker_deployment_ramping_version(request).await
        });
        Ok(ConflictToken::new(answer.await?.conflict_token))
    }

    async fn set_current(
        &self,
        deployment: &DeploymentName,
        build: Option<&BuildId>,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        let request = SetWorkerDeploymentCurrentVersionRequest {
            namespace: self.namespace.clone(),
            deployment_name: deployment.to_string(),
            build_id: build.map(ToString::to_string).unwrap_or_default(),
            conflict_token: guard.token.as_bytes().to_vec(),
            identity: guard.identity.to_string(),
            ..Default::default()
        };
        let answer = self.ask(missing_of(build), async |mut service: Service| {
            service.set_worker_deployment_current_version(request).await
        });
        Ok(ConflictToken::new(answer.await?.conflict_token))
    }
}

/// The record that a not-found error refers to, for a write with this build ID, or without one.
fn missing_of(build: Option<&BuildId>) -> Missing {
    if build.is_some() { Missing::Version } else { Missing::Deployment }
}

/// A version's name in protobuf.
pub(crate) fn version(deployment: &DeploymentName, build: &BuildId) -> WorkerDeploymentVersion {
    WorkerDeploymentVersion { deployment_name: deployment.to_string(), build_id: build.to_string() }
}

/// The error for a response that lacks a required field.
fn hollow(what: &str) -> TemporalError {
    TemporalError::Unreachable { message: format!("the server's response has no {what}") }
}

#[async_trait]
impl Temporal for GrpcTemporal {
    async fn describe_deployment(
        &self,
        deployment: &DeploymentName,
    ) -> Result<DescribedDeployment, TemporalError> {
        let request = DescribeWorkerDeploymentRequest {
            namespace: self.namespace.clone(),
            deployment_name: deployment.to_string(),
        };
        let answer = self.ask(Missing::Deployment, async |mut service: Service| {
            service.describe_worker_deployment(request).await
        });
        let answer = answer.await?;
        let info = answer.worker_deployment_info.ok_or_else(|| hollow("deployment"))?;
        Ok(read::deployment(&info, answer.conflict_token))
    }

    async fn describe_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<DescribedVersion, TemporalError> {
        let request = DescribeWorkerDeploymentVersionRequest {
            namespace: self.namespace.clone(),
            deployment_version: Some(version(deployment, build)),
            ..Default::default()
        };
        let answer = self.ask(Missing::Version, async |mut service: Service| {
            service.describe_worker_deployment_version(request).await
        });
        let answer = answer.await?;
        let info = answer.worker_deployment_version_info.ok_or_else(|| hollow("version"))?;
        let summary = read::version(&info).ok_or_else(|| hollow("version"))?;
        let task_queues = answer.version_task_queues.iter().filter_map(read::task_queue).collect();
        Ok(DescribedVersion { summary, task_queues })
    }

    async fn pollers(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        queue: &TaskQueue,
    ) -> Result<Pollers, TemporalError> {
        let request = DescribeTaskQueueRequest {
            namespace: self.namespace.clone(),
            task_queue: Some(queues::TaskQueue { name: queue.name.clone(), ..Default::default() }),
            task_queue_type: read::queue_type(queue.kind).into(),
            ..Default::default()
        };
        let answer = self
            .ask(Missing::Namespace, async |mut service: Service| service.describe_task_queue(request).await);
        Ok(read::pollers(&answer.await?.pollers, deployment, build))
    }

    async fn running_workflows(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<RunningWorkflows, TemporalError> {
        Ok(RunningWorkflows {
            pinned: self.count_query(running_query(deployment, build, "Pinned")).await?,
            auto_upgrade: self.count_query(running_query(deployment, build, "AutoUpgrade")).await?,
        })
    }

    async fn count_pinned(&self, workflows: &PinnedWorkflows) -> Result<u64, TemporalError> {
        self.count_query(workflows.visibility_query()).await
    }

    async fn start_batch(&self, batch: &BatchMove) -> Result<(), TemporalError> {
        self.start_move(batch).await
    }

    async fn describe_batch(&self, job_id: &str) -> Result<DescribedBatch, TemporalError> {
        self.batch(job_id).await
    }

    async fn stop_batch(&self, job_id: &str, reason: &str, identity: &Identity) -> Result<(), TemporalError> {
        self.stop(job_id, reason, identity).await
    }

    async fn set_routing(
        &self,
        deployment: &DeploymentName,
        write: &RoutingWrite,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        match write {
            RoutingWrite::Ramp { to, percent } => self.ramp(deployment, Some(to), *percent, guard).await,
            RoutingWrite::ClearRamp => self.ramp(deployment, None, Percent(0.0), guard).await,
            RoutingWrite::Current(build) => self.set_current(deployment, build.as_ref(), guard).await,
        }
    }

    async fn set_manager(
        &self,
        deployment: &DeploymentName,
        managed: bool,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        let wanted = if managed {
            NewManagerIdentity::Self_(true)
        } else {
            NewManagerIdentity::ManagerIdentity(String::new())
        };
        let request = SetWorkerDeploymentManagerRequest {
            namespace: self.namespace.clone(),
            deployment_name: deployment.to_string(),
            new_manager_identity: Some(wanted),
            conflict_token: guard.token.as_bytes().to_vec(),
            identity: guard.identity.to_string(),
        };
        let answer = self.ask(Missing::Deployment, async |mut service: Service| {
            service.set_worker_deployment_manager(request).await
        });
        Ok(ConflictToken::new(answer.await?.conflict_token))
    }

    async fn delete_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        skip_drainage: bool,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        let request = DeleteWorkerDeploymentVersionRequest {
            namespace: self.namespace.clone(),
            deployment_version: Some(version(deployment, build)),
            skip_drainage,
            identity: identity.to_string(),
            ..Default::default()
        };
        let answer = self.ask(Missing::Version, async |mut service: Service| {
            service.delete_worker_deployment_version(request).await
        });
        answer.await.map(drop)
    }

    async fn delete_deployment(
        &self,
        deployment: &DeploymentName,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        let request = DeleteWorkerDeploymentRequest {
            namespace: self.namespace.clone(),
            deployment_name: deployment.to_string(),
            identity: identity.to_string(),
        };
        let answer = self.ask(Missing::Deployment, async |mut service: Service| {
            service.delete_worker_deployment(request).await
        });
        answer.await.map(drop)
    }

    async fn start_gate(&self, start: &GateStart) -> Result<(), TemporalError> {
        self.start(start).await
    }

    async fn describe_gate(&self, workflow_id: &str) -> Result<GateState, TemporalError> {
        self.state_of(workflow_id).await
    }

    async fn end_gate(
        &self,
        workflow_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        self.terminate(workflow_id, reason, identity).await
    }
}
