//! The errors of the port, distinguished by what the caller can do about them.

use std::time::Duration;

use thiserror::Error;

use windlass_engine::TaskError;

/// The API server's message about a JSON patch that it cannot apply to the stored object: an operation removes
/// something, or adds to something, that does not exist. Every patch of Windlass can be applied to the object that it
/// was decided on. Other
/// refusals with 422 name the object, and what is wrong with it.
const DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

/// A request to the API server that failed.
#[derive(Clone, Debug, Error)]
pub enum ClusterError {
    /// The object has changed since it was observed, or is another object now (409, a failed precondition, or 422 for a
    /// JSON patch that cannot be applied to the stored object). The remedy is always to observe and decide again.
    #[error("{object} changed since it was read: {message}")]
    Conflict {
        /// The object.
        object: String,
        /// The server's message.
        message: String,
    },
    /// A create found the name taken (409 AlreadyExists).
    #[error("{object} already exists")]
    AlreadyExists {
        /// The object.
        object: String,
    },
    /// The object is gone (404).
    #[error("{object} does not exist")]
    NotFound {
        /// The object.
        object: String,
    },
    /// The server refuses the content permanently (400, 413, 422, and 500 for a patch that does not fit the schema).
    #[error("the API server rejects {object}: {message}")]
    Refused {
        /// The object.
        object: String,
        /// The server's message.
        message: String,
    },
    /// The server forbids the request for now (403), because of a missing permission, a quota or a policy.
    #[error("{object}: {message}")]
    Forbidden {
        /// The object.
        object: String,
        /// The server's message.
        message: String,
    },
    /// The server permanently refuses the delete of the object. The object itself is valid.
    #[error("the API server rejects the delete of {object}: {message}")]
    DeleteRefused {
        /// The object.
        object: String,
        /// The server's message.
        message: String,
    },
    /// Any error that may be temporary.
    #[error("{object}: {message}")]
    Transient {
        /// The object.
        object: String,
        /// What happened.
        message: String,
        /// How long the server asked the client to wait.
        retry_after: Option<Duration>,
    },
}

impl ClusterError {
    /// Converts an error of kube-rs about `object` (for example `StatefulSet shop/db-0`).
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
            // The server applies a patch before it compares the resourceVersion. So a patch that was decided on an
            // outdated state, and removes something that no longer exists, does not get 409.
            422 if does_not_apply(&status) => Self::Conflict { object, message },
            400 | 413 | 422 => Self::Refused { object, message },
            500 if message.contains("failed to create typed patch object") => {
                Self::Refused { object, message }
            }
            _ => Self::Transient { object, message, retry_after },
        }
    }

    /// True if the request was forbidden only because a quota is used up. The API server checks quotas last. A dry run of
    /// a create asks for one object more than there will be.
    #[must_use]
    pub fn exceeds_quota(&self) -> bool {
        matches!(self, Self::Forbidden { message, .. } if message.contains("exceeded quota: "))
    }

    /// True if the remedy is to observe and decide again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// The same error, for a request to delete the object.
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

    /// The refusal of a delete in one sentence, with the server's reason; `None` for any other error.
    #[must_use]
    pub fn refused_delete(&self) -> Option<String> {
        matches!(self, Self::DeleteRefused { .. }).then(|| self.to_string())
    }

    /// The error, for a sentence that names the object: the API server's message if it refused the request.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Refused { message, .. }
            | Self::DeleteRefused { message, .. }
            | Self::Forbidden { message, .. } => message.clone(),
            _ => self.to_string(),
        }
    }

    /// The server's message if it permanently refuses the request.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::DeleteRefused { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// True if a 404 is about an object, and not about a path that is not served at the moment.
fn names_an_object(status: &kube::core::Status) -> bool {
    status.reason == "NotFound" && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// True if a 422 is about a JSON patch that does not fit the stored object, and not about the content of the object.
fn does_not_apply(status: &kube::core::Status) -> bool {
    let names_a_field = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    status.message == DOES_NOT_APPLY && !names_a_field
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
