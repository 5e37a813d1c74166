//! Why a task cannot go on, and why a record of one cannot be run.

use std::time::Duration;

/// Why a task could not go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TaskError {
    /// Trying again would not help: the task fails, and its plan with it.
    #[error("{message}")]
    Terminal {
        /// Why, in a sentence for the user.
        message: String,
    },
    /// It may work another time: it is run again, for ever.
    #[error("{message}")]
    Transient {
        /// Why, in a sentence for the user.
        message: String,
        /// How long the other side asked us to wait. It lengthens the backoff, and never shortens it.
        retry_after: Option<Duration>,
    },
}

impl TaskError {
    /// An error that trying again would not help.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::Terminal { message: message.into() }
    }

    /// An error that may be gone another time.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient { message: message.into(), retry_after: None }
    }

    /// An error that may be gone another time, and how long the other side asked us to wait.
    pub fn transient_after(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::Transient { message: message.into(), retry_after: Some(retry_after) }
    }
}

/// Why a task's record cannot be turned into a task.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// No code of this type is in this program: another version wrote it, or it is misspelt.
    #[error("task {task_id} is of the unknown type {type_:?}; known types: {}", known.join(", "))]
    UnknownType {
        /// The task.
        task_id: String,
        /// Its type.
        type_: String,
        /// The types that are known, in order.
        known: Vec<String>,
    },
    /// The type is known, and the params are not what it takes.
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
