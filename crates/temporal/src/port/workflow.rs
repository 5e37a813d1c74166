//! The gate's workflow, which has to succeed on a version before the version gets tasks.

use std::time::Duration;

use serde_json::Value;

use super::names::{BuildId, DeploymentName, Identity};

/// The parameters of a gate's workflow.
#[derive(Clone, PartialEq)]
pub struct GateStart {
    /// The deployment of the version.
    pub deployment: DeploymentName,
    /// The version that it is pinned to.
    pub build: BuildId,
    /// The workflow's ID: unique per task, attempt and task queue.
    pub workflow_id: String,
    /// The request's ID: a function of the workflow ID, so that retries are idempotent.
    pub request_id: String,
    /// The workflow's type.
    pub workflow_type: String,
    /// The task queue that it runs on.
    pub task_queue: String,
    /// Its one argument, if any.
    pub input: Option<Value>,
    /// Its execution time-out.
    pub timeout: Duration,
    /// The identity of the caller.
    pub identity: Identity,
}

impl std::fmt::Debug for GateStart {
    /// Does not print the input, which may come from a Secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateStart")
            .field("build", &self.build)
            .field("workflow_id", &self.workflow_id)
            .field("workflow_type", &self.workflow_type)
            .field("task_queue", &self.task_queue)
            .finish_non_exhaustive()
    }
}

/// The state of a gate's workflow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GateState {
    /// It runs.
    Running,
    /// It completed.
    Completed,
    /// It failed.
    Failed {
        /// The failure's message.
        message: String,
    },
    /// It timed out.
    TimedOut,
    /// A person cancelled or terminated it.
    Ended {
        /// The reason, if one was given.
        message: String,
    },
}
