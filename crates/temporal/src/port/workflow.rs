//! The workflow that a version has to get through before it takes tasks.

use std::time::Duration;

use serde_json::Value;

use super::names::{BuildId, DeploymentName, Identity};

/// What starts a gate's workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct GateStart {
    /// The deployment of the version.
    pub deployment: DeploymentName,
    /// The version that it is pinned to.
    pub build: BuildId,
    /// The workflow's ID: one for each task, attempt and task queue.
    pub workflow_id: String,
    /// The request's ID: the same for the same workflow ID.
    pub request_id: String,
    /// The workflow's type.
    pub workflow_type: String,
    /// Where it is run.
    pub task_queue: String,
    /// Its one argument, if it takes one.
    pub input: Option<Value>,
    /// After this Temporal ends it.
    pub timeout: Duration,
    /// Who starts it.
    pub identity: Identity,
}

/// How a gate's workflow stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GateState {
    /// It runs.
    Running,
    /// It has ended well.
    Completed,
    /// It has failed.
    Failed {
        /// The workflow's own words.
        message: String,
    },
    /// It was not over in time.
    TimedOut,
    /// A person ended it: cancelled or terminated.
    Ended {
        /// Why, if a reason was given.
        message: String,
    },
}
