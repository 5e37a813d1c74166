//! Batch operations that move pinned workflows from one version to another.

use super::names::{BuildId, DeploymentName, Identity};

/// The pinned workflows that run on a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PinnedWorkflows {
    /// The deployment of the version.
    pub deployment: DeploymentName,
    /// The version.
    pub build: BuildId,
    /// Selects some of them: a condition in the language of Temporal's visibility queries.
    pub query: Option<String>,
}

impl PinnedWorkflows {
    /// The visibility query that selects them.
    #[must_use]
    pub fn visibility_query(&self) -> String {
        let all = running_query(&self.deployment, &self.build, "Pinned");
        match &self.query {
            Some(query) => format!("{all} AND ({query})"),
            None => all,
        }
    }
}

/// The visibility query that selects the running workflows of a version with a versioning behavior.
#[must_use]
pub fn running_query(deployment: &DeploymentName, build: &BuildId, behavior: &str) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "''");
    format!(
        "TemporalWorkerDeploymentVersion = '{}:{}' AND TemporalWorkflowVersioningBehavior = '{behavior}' AND \
         ExecutionStatus = 'Running'",
        quoted(deployment.as_str()),
        quoted(build.as_str()),
    )
}

/// A batch operation that pins workflows to another version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BatchMove {
    /// The ID of the batch operation, unique in the namespace.
    pub job_id: String,
    /// The workflows.
    pub workflows: PinnedWorkflows,
    /// The version that they move to.
    pub to: BuildId,
    /// The reason, which Temporal shows.
    pub reason: String,
    /// The identity of the caller.
    pub identity: Identity,
}

/// A batch operation as Temporal describes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DescribedBatch {
    /// Its state.
    pub state: BatchState,
    /// The number of workflows that it selected; 0 until Temporal has counted them.
    pub total: u64,
    /// The number of workflows that it changed. Temporal counts them by the thousand while it runs.
    pub complete: u64,
    /// The number of workflows that it could not change.
    pub failed: u64,
}

/// The state of a batch operation (`BatchOperationState`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BatchState {
    /// It runs.
    Running,
    /// It has processed all workflows.
    Completed,
    /// It failed, or a person stopped it.
    Failed,
}
