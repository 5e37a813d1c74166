//! The port to Temporal: what is asked of it, and the few calls that change something there.
//!
//! Everything here is about one namespace of one Temporal, which the implementor was made for by [`Connections`]. The RPCs
//! are those of `temporal.api.workflowservice.v1.WorkflowService`. No call may hang: each has a time-out of the implementor's
//! own (10 s at most), after which it is [`TemporalError::Unreachable`].

mod error;
mod names;
mod paced;
mod routing;
mod version;
mod workflow;

use std::sync::Arc;

use async_trait::async_trait;

use crate::api::Connection;

pub use error::{Missing, TemporalError};
pub use names::{BuildId, ConflictToken, DeploymentName, Identity};
pub use paced::{Pace, Paced};
pub use routing::{DescribedDeployment, Guard, Percent, Ramp, RampTarget, Routing, RoutingWrite};
pub use version::{
    DescribedVersion, Drainage, DrainageStatus, Pollers, RunningWorkflows, TaskQueue, TaskQueueKind,
    VersionStatus, VersionSummary,
};
pub use workflow::{GateStart, GateState};

/// What is asked of Temporal.
#[async_trait]
pub trait Temporal: Send + Sync {
    /// A deployment: its routing, its versions, its manager, and the token that a write which is decided on this answer
    /// has to bring along.
    ///
    /// RPC `DescribeWorkerDeployment`. [`Missing::Deployment`] where no worker of it ever polled: Temporal makes the record
    /// when the first one does. [`Missing::Namespace`] is another answer.
    async fn describe_deployment(
        &self,
        deployment: &DeploymentName,
    ) -> Result<DescribedDeployment, TemporalError>;

    /// A version: how it stands, and the task queues that its workers ever polled.
    ///
    /// RPC `DescribeWorkerDeploymentVersion`. [`Missing::Version`] where Temporal does not know it.
    async fn describe_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<DescribedVersion, TemporalError>;

    /// The pollers of this version that were seen on a task queue of it.
    ///
    /// RPC `DescribeTaskQueue` for the queue and its kind: those of `pollers` whose `deployment_options` name this deployment
    /// and build. Temporal remembers a poller for some minutes after it has gone.
    async fn pollers(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        queue: &TaskQueue,
    ) -> Result<Pollers, TemporalError>;

    /// How many workflows run on a version, by their versioning behaviour.
    ///
    /// RPC `CountWorkflowExecutions`, once for each behaviour: `TemporalWorkerDeploymentVersion = '<deployment>:<build>' AND
    /// TemporalWorkflowVersioningBehavior = 'Pinned' AND ExecutionStatus = 'Running'`. From the visibility store, which lags,
    /// and of which a namespace may ask ten times a second only: the caller asks seldom.
    async fn running_workflows(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
    ) -> Result<RunningWorkflows, TemporalError>;

    /// The only call that changes where tasks go.
    ///
    /// RPC `SetWorkerDeploymentRampingVersion` or `SetWorkerDeploymentCurrentVersion`, with the guard's conflict token and
    /// identity, and with neither `ignore_missing_task_queues` nor `allow_no_pollers`. [`TemporalError::Conflict`] where
    /// the token is stale, [`TemporalError::OwnedByOther`] where another identity manages the deployment,
    /// [`TemporalError::MissingTaskQueues`], [`TemporalError::NoPollers`].
    ///
    /// Temporal accepts a write that changes nothing whatever its token is. Answers with the next token.
    async fn set_routing(
        &self,
        deployment: &DeploymentName,
        write: &RoutingWrite,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError>;

    /// Makes the guard's identity the manager of the deployment, or leaves it without one.
    ///
    /// RPC `SetWorkerDeploymentManager`, `self` or an empty `manager_identity`. Temporal lets anyone take it from anyone: the
    /// caller has read [`DescribedDeployment::manager`] first, and brings the token of that answer.
    async fn set_manager(
        &self,
        deployment: &DeploymentName,
        managed: bool,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError>;

    /// Has Temporal forget a version.
    ///
    /// RPC `DeleteWorkerDeploymentVersion`. With `skip_drainage` also one on which pinned workflows still run, which are
    /// stuck then until a person moves them. [`TemporalError::VersionHasPollers`] for minutes after its last worker has gone,
    /// [`TemporalError::VersionDraining`], [`TemporalError::VersionRouted`]. One that is gone already is
    /// `Ok` as long as its deployment is known, and not found after that. Ask every 5 s at most: each try has Temporal look
    /// at the drainage anew.
    async fn delete_version(
        &self,
        deployment: &DeploymentName,
        build: &BuildId,
        skip_drainage: bool,
        identity: &Identity,
    ) -> Result<(), TemporalError>;

    /// Has Temporal forget a deployment that has no versions.
    ///
    /// RPC `DeleteWorkerDeployment`. One that is gone already is `Ok`, or [`Missing::Deployment`].
    async fn delete_deployment(
        &self,
        deployment: &DeploymentName,
        identity: &Identity,
    ) -> Result<(), TemporalError>;

    /// Starts a gate's workflow, pinned to a version. The same workflow ID again starts no other workflow, whether the
    /// first one still runs or is over: that is `Ok`, too.
    ///
    /// RPC `StartWorkflowExecution` with `request_id` and `workflow_id` as given, `workflow_id_reuse_policy` reject
    /// duplicate, `versioning_override` pinned to the version, `workflow_execution_timeout`, the input as one JSON payload (none:
    /// no payload). [`TemporalError::VersionNotReady`] for the `FailedPrecondition` in the second after the version
    /// appeared.
    async fn start_gate(&self, start: &GateStart) -> Result<(), TemporalError>;

    /// How a gate's workflow stands.
    ///
    /// RPC `DescribeWorkflowExecution`; where it has failed also `GetWorkflowExecutionHistory` for its closing event, whose
    /// failure's message is the workflow's own words (of the innermost cause). [`Missing::Workflow`].
    async fn describe_gate(&self, workflow_id: &str) -> Result<GateState, TemporalError>;

    /// Ends a gate's workflow that nobody waits for any more. One that is over, or never was, is `Ok`.
    ///
    /// RPC `TerminateWorkflowExecution`.
    async fn end_gate(
        &self,
        workflow_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError>;
}

/// Where the ports come from.
#[async_trait]
pub trait Connections: Send + Sync {
    /// The port for a connection of an object in this namespace of Kubernetes, whose Secrets are read for it.
    /// Asked at each reconcile: connections are shared between objects that say the same, and made anew when a
    /// Secret has changed.
    ///
    /// [`TemporalError::SecretNotFound`] names the Secret or the key that is not there,
    /// [`TemporalError::CredentialsInvalid`] what is no certificate, key or API key.
    async fn connect(
        &self,
        namespace: &str,
        connection: &Connection,
    ) -> Result<Arc<dyn Temporal>, TemporalError>;
}
