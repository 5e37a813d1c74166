//! The port to Temporal: its queries, and the few calls that change something.
//!
//! An implementor is a client of one namespace of one Temporal server; [`Connections`] creates it. The RPCs are those of
//! `temporal.api.workflowservice.v1.WorkflowService`. No call may hang: the implementor sets a time-out of at most 10 s,
//! after which the call fails with [`TemporalError::Unreachable`].

mod batch;
mod error;
mod names;
mod paced;
mod routing;
mod version;
mod workflow;

use std::sync::Arc;

use async_trait::async_trait;

use crate::api::Connection;

pub use batch::{BatchMove, BatchState, DescribedBatch, PinnedWorkflows, running_query};
pub use error::{Missing, TemporalError};
pub use names::{BuildId, ConflictToken, DeploymentName, Identity};
pub use paced::{Pace, Paced};
pub use routing::{DescribedDeployment, Guard, Percent, Ramp, RampTarget, Routing, RoutingWrite};
pub use version::{
    DescribedVersion, Drainage, DrainageStatus, Pollers, RunningWorkflows, TaskQueue, TaskQueueKind,
    VersionStatus, VersionSummary,
};
pub use workflow::{GateStart, GateState};

/// A client of one namespace of Temporal.
#[async_trait]
pub trait Temporal: Send + Sync {
    /// Describes a deployment: its routing, its versions, its manager, and the conflict token for a write that is
    /// based on this response.
    ///
    /// RPC `DescribeWorkerDeployment`. [`Missing::Deployment`] if no worker of the deployment ever polled: Temporal
    /// creates the record at the first poll. [`Missing::Namespace`] is a separate error.
    async fn describe_deployment(
        &self,
        deployment: &DeploymentName,
    ) -> Result<DescribedDeployment, TemporalError>;

    /// Describes a version: its status, and every task queue that its workers have polled.
    ///
    /// RPC `DescribeWorkerDeploymentVersion`. [`Missing::Version`] if Temporal does not know it.
    async fn describe_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<DescribedVersion, TemporalError>;

    /// Counts the pollers of this version that Temporal has seen on one of its task queues.
    ///
    /// RPC `DescribeTaskQueue` for the queue and its kind: those of `pollers` whose `deployment_options` name this
    /// deployment and build. Temporal remembers a poller for some minutes after it stopped.
    async fn pollers(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        queue: &TaskQueue,
    ) -> Result<Pollers, TemporalError>;

    /// Counts the running workflows of a version, by their versioning behavior.
    ///
    /// RPC `CountWorkflowExecutions`, once for each behavior: `TemporalWorkerDeploymentVersion =
    /// '<deployment>:<build>' AND TemporalWorkflowVersioningBehavior = 'Pinned' AND ExecutionStatus = 'Running'`. The
    /// answer comes from the visibility store, which lags and which allows a namespace only ten queries a second:
    /// call it rarely.
    async fn running_workflows(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<RunningWorkflows, TemporalError>;

    /// Counts pinned workflows.
    ///
    /// RPC `CountWorkflowExecutions` with their visibility query. [`TemporalError::Refused`] if Temporal cannot parse it.
    /// The answer lags, and it is as expensive as that of [`Self::running_workflows`].
    async fn count_pinned(&self, workflows: &PinnedWorkflows) -> Result<u64, TemporalError>;

    /// Starts a batch operation that pins workflows to another version. A second call with the same job ID starts
    /// nothing and is `Ok`, unless the limit of running ones is reached: describe the batch first.
    ///
    /// RPC `StartBatchOperation` with an `update_workflow_options_operation`, whose `update_mask` is
    /// `versioning_override`. [`TemporalError::TooManyBatches`] while as many run in the namespace as it allows: 1 by
    /// default.
    async fn start_batch(&self, batch: &BatchMove) -> Result<(), TemporalError>;

    /// Describes a batch operation.
    ///
    /// RPC `DescribeBatchOperation`. [`Missing::Batch`] if it was never started, or ended longer ago than the retention
    /// of the namespace.
    async fn describe_batch(&self, job_id: &str) -> Result<DescribedBatch, TemporalError>;

    /// Stops a batch operation; the workflows that it moved stay where they are. `Ok` if it has ended or never existed.
    ///
    /// RPC `StopBatchOperation`.
    async fn stop_batch(&self, job_id: &str, reason: &str, identity: &Identity) -> Result<(), TemporalError>;

    /// Changes the routing. No other call does.
    ///
    /// RPC `SetWorkerDeploymentRampingVersion` or `SetWorkerDeploymentCurrentVersion`, with the guard's conflict
    /// token and identity, and with neither `ignore_missing_task_queues` nor `allow_no_pollers`.
    /// [`TemporalError::Conflict`] if the token is stale, [`TemporalError::OwnedByOther`] if another identity manages
    /// the deployment, [`TemporalError::MissingTaskQueues`], [`TemporalError::NoPollers`].
    ///
    /// Temporal accepts a write that changes nothing, whatever its token. Returns the next token.
    async fn set_routing(
        &self,
        deployment: &DeploymentName,
        write: &RoutingWrite,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError>;

    /// Makes the guard's identity the manager of the deployment, or removes the manager.
    ///
    /// RPC `SetWorkerDeploymentManager`, `self` or an empty `manager_identity`. Temporal lets any identity take over
    /// from any other: the caller reads [`DescribedDeployment::manager`] first and passes the token of that answer.
    async fn set_manager(
        &self,
        deployment: &DeploymentName,
        managed: bool,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError>;

    /// Deletes Temporal's record of a version.
    ///
    /// RPC `DeleteWorkerDeploymentVersion`. With `skip_drainage` it also deletes a version on which pinned workflows
    /// still run; those are stuck until a person moves them. [`TemporalError::VersionHasPollers`] for some minutes
    /// after the last worker stopped, [`TemporalError::VersionDraining`], [`TemporalError::VersionRouted`]. Deleting
    /// a version twice is `Ok` while the deployment exists, and not found after that. Call it every 5 s at most: each
    /// call makes Temporal re-check the drainage.
    async fn delete_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        skip_drainage: bool,
        identity: &Identity,
    ) -> Result<(), TemporalError>;

    /// Deletes Temporal's record of a deployment that has no versions.
    ///
    /// RPC `DeleteWorkerDeployment`. Deleting it twice is `Ok` or [`Missing::Deployment`].
    async fn delete_deployment(
        &self,
        deployment: &DeploymentName,
        identity: &Identity,
    ) -> Result<(), TemporalError>;

    /// Starts a gate's workflow, pinned to a version. A second call with the same workflow ID starts nothing and is
    /// `Ok`, whether the first workflow still runs or is closed.
    ///
    /// RPC `StartWorkflowExecution` with `request_id` and `workflow_id` as given, `workflow_id_reuse_policy` reject
    /// duplicate, `versioning_override` pinned to the version, `workflow_execution_timeout`, the input as one JSON
    /// payload (none: no payload). [`TemporalError::VersionNotReady`] for the `FailedPrecondition` in the second
    /// after the version appeared.
    async fn start_gate(&self, start: &GateStart) -> Result<(), TemporalError>;

    /// Describes a gate's workflow.
    ///
    /// RPC `DescribeWorkflowExecution`; if it failed, also `GetWorkflowExecutionHistory` for its closing event, whose
    /// (innermost) failure message is returned. [`Missing::Workflow`].
    async fn describe_gate(&self, workflow_id: &str) -> Result<GateState, TemporalError>;

    /// Terminates a gate's workflow that no plan waits for. `Ok` if it is closed or never existed.
    ///
    /// RPC `TerminateWorkflowExecution`.
    async fn end_gate(
        &self,
        workflow_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError>;
}

/// Creates the clients.
#[async_trait]
pub trait Connections: Send + Sync {
    /// The client for the connection of an object in this Kubernetes namespace; reads the Secrets that the connection
    /// names. Called in each reconcile: objects with equal settings share a connection, and a changed Secret creates
    /// a new one.
    ///
    /// [`TemporalError::SecretNotFound`] names the Secret or key that does not exist,
    /// [`TemporalError::CredentialsInvalid`] the one that is not a valid certificate, private key or API key.
    async fn connect(
        &self,
        namespace: &str,
        connection: &Connection,
    ) -> Result<Arc<dyn Temporal>, TemporalError>;
}
