//! What can go wrong at the port, told apart by what can be done about it.

use std::time::Duration;

use thiserror::Error;

use crate::engine::TaskError;

/// A request to the API server that did not do what it was to do.
#[derive(Clone, Debug, Error)]
pub enum ClusterError {
    /// The object changed, or is another one, since it was observed (409, or a failed precondition).
    /// The remedy is always to observe and decide again.
    #[error("{object} changed since it was read: {message}")]
    Conflict {
        /// Which object.
        object: String,
        /// The server's sentence.
        message: String,
    },
    /// A create found the name taken (409 AlreadyExists).
    #[error("{object} exists already")]
    AlreadyExists {
        /// Which object.
        object: String,
    },
    /// The object is gone (404).
    #[error("{object} does not exist")]
    NotFound {
        /// Which object.
        object: String,
    },
    /// The server refuses the content and will go on refusing it (400, 413, 422).
    #[error("the API server refuses {object}: {message}")]
    Refused {
        /// Which object.
        object: String,
        /// The server's sentence.
        message: String,
    },
    /// The server does not allow it, for now (403): a right, a quota or a policy is in the way.
    #[error("{object}: {message}")]
    Forbidden {
        /// Which object.
        object: String,
        /// The server's sentence.
        message: String,
    },
    /// The server refuses for good to delete it: what goes is as it should be, only that it goes is not allowed.
    #[error("the API server refuses the delete of {object}: {message}")]
    DeleteRefused {
        /// Which object.
        object: String,
        /// The server's sentence.
        message: String,
    },
    /// Anything that may pass by itself.
    #[error("{object}: {message}")]
    Transient {
        /// Which object.
        object: String,
        /// What happened.
        message: String,
        /// How long the server asked to wait.
        retry_after: Option<Duration>,
    },
}

impl ClusterError {
    /// Reads an error of kube-rs about `object` (for example `StatefulSet shop/db-0`).
    #[must_use]
    pub fn from_kube(object: String, error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Transient { object, message: error.to_string(), retry_after: None };
        };
        let message = status.message.clone();
        let retry_after = status
            .details
            .as_ref()
            .map(|d| u64::from(d.retry_after_seconds))
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        match status.code {
            403 => Self::Forbidden { object, message },
            404 if names_an_object(&status) => Self::NotFound { object },
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists { object },
            409 => Self::Conflict { object, message },
            // A JSON patch whose test failed was decided on something that is no longer so.
            422 if message.contains("testing value") || message.contains("test failed") => {
                Self::Conflict { object, message }
            }
            400 | 413 | 422 => Self::Refused { object, message },
            500 if message.contains("failed to create typed patch object") => {
                Self::Refused { object, message }
            }
            _ => Self::Transient { object, message, retry_after },
        }
    }

    /// Whether observing again is all that has to be done.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// The same of a request that was to delete the object.
    #[must_use]
    pub fn of_delete(self) -> Self {
        match self {
            Self::Refused { object, message } => Self::DeleteRefused { object, message },
            Self::Forbidden { object, message } => {
                Self::Forbidden { object: format!("the delete of {object}"), message }
            }
            other => other,
        }
    }

    /// That the server refuses to delete an object, and whose rule that is, in a sentence.
    #[must_use]
    pub fn refused_delete(&self) -> Option<String> {
        matches!(self, Self::DeleteRefused { .. }).then(|| self.to_string())
    }

    /// The server's sentence where it refuses the content for good.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::DeleteRefused { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// Whether a 404 is about an object, and not about a path that is not served just now.
fn names_an_object(status: &kube::core::Status) -> bool {
    status.reason == "NotFound" && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

impl From<ClusterError> for TaskError {
    fn from(error: ClusterError) -> Self {
        match &error {
            ClusterError::Refused { .. } | ClusterError::DeleteRefused { .. } => {
                Self::terminal(error.to_string())
            }
            ClusterError::Transient { retry_after, .. } => {
                Self::Transient { message: error.to_string(), retry_after: *retry_after }
            }
            ClusterError::Forbidden { .. }
            | ClusterError::Conflict { .. }
            | ClusterError::AlreadyExists { .. }
            | ClusterError::NotFound { .. } => Self::transient(error.to_string()),
        }
    }
}
