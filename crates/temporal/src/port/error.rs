//! What Temporal may answer instead.

use std::time::Duration;

use super::names::Identity;

/// What is not there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Missing {
    /// No worker of this deployment ever polled.
    Deployment,
    /// The deployment has no such version.
    Version,
    /// There is no such namespace.
    Namespace,
    /// There is no such workflow.
    Workflow,
}

/// Why Temporal did not do, or did not say, what it was asked. Each has the server's sentence where there is one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TemporalError {
    /// gRPC `RESOURCE_EXHAUSTED`.
    #[error("Temporal limits the rate of requests: {message}")]
    RateLimited {
        /// The server's sentence.
        message: String,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
    },
    /// No connection, no answer in time, a TLS handshake that failed over the server's certificate, or gRPC `UNAVAILABLE`,
    /// `DEADLINE_EXCEEDED`, `INTERNAL`, `UNKNOWN`, `CANCELLED`, `ABORTED`, `DATA_LOSS`.
    #[error("Temporal cannot be reached: {message}")]
    Unreachable {
        /// What was found.
        message: String,
    },
    /// gRPC `UNAUTHENTICATED` or `PERMISSION_DENIED`; a client certificate that the server refused; credentials that cannot
    /// be read.
    #[error("Temporal refuses the credentials: {message}")]
    CredentialsInvalid {
        /// What was found.
        message: String,
    },
    /// A Secret of the connection, or a key in it, is not there.
    #[error("the connection's Secret is not there: {message}")]
    SecretNotFound {
        /// The Secret and the key.
        message: String,
    },
    /// gRPC `NOT_FOUND`, and a namespace that is not there.
    #[error("Temporal does not know it: {message}")]
    NotFound {
        /// What is not there.
        what: Missing,
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: the conflict token is stale. Describe, decide, and try again.
    #[error("the deployment was changed in Temporal since it was described: {message}")]
    Conflict {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: another identity manages the deployment.
    #[error("another identity manages the deployment: {message}")]
    OwnedByOther {
        /// Who, where the server says.
        manager: Option<Identity>,
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: the version lacks a task queue that the current one has.
    #[error("the version lacks a task queue of the current one: {message}")]
    MissingTaskQueues {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: no worker of the version was seen.
    #[error("the version has no pollers: {message}")]
    NoPollers {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a start that is pinned: the version is listed, and not yet known everywhere.
    #[error("the version is not known everywhere yet: {message}")]
    VersionNotReady {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: workers of it were seen minutes ago.
    #[error("the version has pollers: {message}")]
    VersionHasPollers {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: pinned workflows may run on it.
    #[error("the version is draining: {message}")]
    VersionDraining {
        /// The server's sentence.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: it is current or ramping.
    #[error("the version is current or ramping: {message}")]
    VersionRouted {
        /// The server's sentence.
        message: String,
    },
    /// Any other gRPC `FAILED_PRECONDITION`, and `INVALID_ARGUMENT`, `OUT_OF_RANGE`, `UNIMPLEMENTED`, `ALREADY_EXISTS`.
    #[error("Temporal refuses it: {message}")]
    Refused {
        /// The server's sentence.
        message: String,
    },
}
