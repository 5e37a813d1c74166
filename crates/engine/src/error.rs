//! Errors of tasks, and errors of resolving a task's record to its code.

use std::time::Duration;

/// An error that a task returns.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TaskError {
    /// A retry would not help: the task fails, and its plan with it.
    #[error("{message}")]
    Terminal {
        /// Why, in a sentence for the user.
        message: String,
    },
    /// A retry may succeed: the task runs again after a backoff, without limit.
    #[error("{message}")]
    Transient {
        /// Why, in a sentence for the user.
        message: String,
        /// How long the peer asked us to wait. It can lengthen the backoff, never shorten it.
        retry_after: Option<Duration>,
    },
}

impl TaskError {
    /// An error that a retry cannot resolve.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::Terminal { message: message.into() }
    }

    /// An error that a retry may resolve.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient { message: message.into(), retry_after: None }
    }

    /// An error that a retry may resolve, with the wait that the peer asked for.
    pub fn transient_after(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::Transient { message: message.into(), retry_after: Some(retry_after) }
    }
}

/// Why a task's record cannot be resolved to a task.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// This program has no task of this type: another version wrote the record, or the type is misspelt.
    #[error("task {task_id} is of the unknown type {type_:?}; known types: {}", known.join(", "))]
    UnknownType {
        /// The task.
        task_id: String,
        /// Its type.
        type_: String,
        /// The known types, sorted.
        known: Vec<String>,
    },
    /// The type is known, but it does not accept the params.
    #[error("the params of task {task_id} of type {type_} cannot be read: {reason}")]
    BadParams {
        /// The task.
        task_id: String,
        /// Its type.
        type_: String,
        /// What is wrong with them.
        reason: String,
    },
}
