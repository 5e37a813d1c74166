//! A client wrapper that limits the rate of calls to what a namespace of Temporal allows, counts them, and times them
//! out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_clock::monotonic;

use super::{
    BatchMove, BuildId, ConflictToken, DeploymentName, DescribedBatch, DescribedDeployment, DescribedVersion,
    GateStart, GateState, Guard, Identity, PinnedWorkflows, Pollers, RoutingWrite, RunningWorkflows,
    TaskQueue, Temporal, TemporalError,
};
use crate::api::Connection;
use crate::metrics::Metrics;

/// A namespace allows 50 calls a second by default; other clients need some of them.
const BETWEEN: Duration = Duration::from_millis(40);
/// The visibility store allows 10 queries a second.
const BETWEEN_COUNTS: Duration = Duration::from_millis(200);
/// The time-out of a call.
const PATIENCE: Duration = Duration::from_secs(15);

/// A call that fails after this long indicates a server that hangs; a server that does not run refuses the connection
/// at once.
const LONG: Duration = Duration::from_secs(5);
/// For this long after such a failure, all calls fail at once. Otherwise, reconciles of many objects of a server that
/// hangs would block the objects of all other servers.
const SILENT: Duration = Duration::from_secs(5);

/// The rate limit of each namespace of each Temporal server, and the servers that hang.
#[derive(Debug, Default)]
pub struct Pace {
    next: Mutex<HashMap<(String, String, bool), Instant>>,
    silent: Mutex<HashMap<(String, String), (Instant, TemporalError)>>,
}

impl Pace {
    /// The error of the last call that hung, while calls are suspended because of it.
    fn silence(&self, connection: &Connection) -> Option<TemporalError> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, error) = silent.get(&place(connection))?;
        (at.elapsed() < SILENT).then(|| error.clone())
    }

    /// Records the result of a call that started at `began`.
    fn answered(&self, connection: &Connection, began: Instant, error: Option<&TemporalError>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error @ TemporalError::Unreachable { .. }) if began.elapsed() >= LONG => {
                silent.insert(place(connection), (monotonic(), error.clone()));
            }
            _ => {
                silent.remove(&place(connection));
            }
        }
    }

    async fn turn(&self, connection: &Connection, counts: bool) {
        let between = if counts { BETWEEN_COUNTS } else { BETWEEN };
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (connection.address.clone(), connection.namespace.clone(), counts);
            let slot = next.entry(key).or_insert_with(monotonic);
            let at = (*slot).max(monotonic());
            *slot = at + between;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

fn place(connection: &Connection) -> (String, String) {
    (connection.address.clone(), connection.namespace.clone())
}

/// A client that observes the rate limits.
pub struct Paced {
    port: Arc<dyn Temporal>,
    connection: Connection,
    pace: Arc<Pace>,
    metrics: Metrics,
}

impl Paced {
    /// Wraps a client.
    #[must_use]
    pub fn new(port: Arc<dyn Temporal>, connection: Connection, pace: Arc<Pace>, metrics: Metrics) -> Self {
        Self { port, connection, pace, metrics }
    }

    async fn ask<T>(
        &self,
        rpc: &'static str,
        call: impl Future<Output = Result<T, TemporalError>> + Send,
    ) -> Result<T, TemporalError> {
        if let Some(error) = self.pace.silence(&self.connection) {
            return Err(error);
        }
        self.pace.turn(&self.connection, rpc == "CountWorkflowExecutions").await;
        let began = monotonic();
        let answer = tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| {
            let message =
                format!("{} did not answer {rpc} within {} s", self.connection.address, PATIENCE.as_secs());
            Err(TemporalError::Unreachable { message })
        });
        self.metrics.count_request(rpc, answer.as_ref().err());
        self.pace.answered(&self.connection, began, answer.as_ref().err());
        answer
    }
}

#[async_trait]
impl Temporal for Paced {
    async fn describe_deployment(&self, of: &DeploymentName) -> Result<DescribedDeployment, TemporalError> {
        self.ask("DescribeWorkerDeployment", self.port.describe_deployment(of)).await
    }

    async fn describe_version(
        &self,
        of: &DeploymentName,
        build: &BuildId,
    ) -> Result<DescribedVersion, TemporalError> {
        self.ask("DescribeWorkerDeploymentVersion", self.port.describe_version(of, build)).await
    }

    async fn pollers(
        &self,
        of: &DeploymentName,
        build: &BuildId,
        queue: &TaskQueue,
    ) -> Result<Pollers, TemporalError> {
        self.ask("DescribeTaskQueue", self.port.pollers(of, build, queue)).await
    }

    async fn running_workflows(
        &self,
        of: &DeploymentName,
        build: &BuildId,
    ) -> Result<RunningWorkflows, TemporalError> {
        self.ask("CountWorkflowExecutions", self.port.running_workflows(of, build)).await
    }

    async fn count_pinned(&self, workflows: &PinnedWorkflows) -> Result<u64, TemporalError> {
        self.ask("CountWorkflowExecutions", self.port.count_pinned(workflows)).await
    }

    async fn start_batch(&self, batch: &BatchMove) -> Result<(), TemporalError> {
        self.ask("StartBatchOperation", self.port.start_batch(batch)).await
    }

    async fn describe_batch(&self, job_id: &str) -> Result<DescribedBatch, TemporalError> {
        self.ask("DescribeBatchOperation", self.port.describe_batch(job_id)).await
    }

    async fn stop_batch(&self, job_id: &str, reason: &str, identity: &Identity) -> Result<(), TemporalError> {
        self.ask("StopBatchOperation", self.port.stop_batch(job_id, reason, identity)).await
    }

    async fn set_routing(
        &self,
        of: &DeploymentName,
        write: &RoutingWrite,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        let rpc = match write {
            RoutingWrite::Current(_) => "SetWorkerDeploymentCurrentVersion",
            RoutingWrite::Ramp { .. } | RoutingWrite::ClearRamp => "SetWorkerDeploymentRampingVersion",
        };
        self.ask(rpc, self.port.set_routing(of, write, guard)).await
    }

    async fn set_manager(
        &self,
        of: &DeploymentName,
        managed: bool,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        self.ask("SetWorkerDeploymentManager", self.port.set_manager(of, managed, guard)).await
    }

    async fn delete_version(
        &self,
        of: &DeploymentName,
        build: &BuildId,
        skip_drainage: bool,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        let call = self.port.delete_version(of, build, skip_drainage, identity);
        self.ask("DeleteWorkerDeploymentVersion", call).await
    }

    async fn delete_deployment(&self, of: &DeploymentName, identity: &Identity) -> Result<(), TemporalError> {
        self.ask("DeleteWorkerDeployment", self.port.delete_deployment(of, identity)).await
    }

    async fn start_gate(&self, start: &GateStart) -> Result<(), TemporalError> {
        self.ask("StartWorkflowExecution", self.port.start_gate(start)).await
    }

    async fn describe_gate(&self, workflow_id: &str) -> Result<GateState, TemporalError> {
        self.ask("DescribeWorkflowExecution", self.port.describe_gate(workflow_id)).await
    }

    async fn end_gate(
        &self,
        workflow_id: &str,
        reason: &str,
        identity: &Identity,
    ) -> Result<(), TemporalError> {
        self.ask("TerminateWorkflowExecution", self.port.end_gate(workflow_id, reason, identity)).await
    }
}
