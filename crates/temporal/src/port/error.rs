//! Errors of calls to Temporal.

use std::time::Duration;

use super::names::Identity;
use crate::api::Reason;

/// The kind of record that Temporal reports as not found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Missing {
    /// Temporal has no record of the deployment: no worker of it ever polled.
    Deployment,
    /// The deployment has no such version.
    Version,
    /// The namespace does not exist.
    Namespace,
    /// The workflow does not exist.
    Workflow,
    /// The batch operation does not exist.
    Batch,
}

/// Why a call to Temporal failed. Each variant carries the server's message where there is one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TemporalError {
    /// gRPC `RESOURCE_EXHAUSTED`.
    #[error("the rate of requests to Temporal is limited: {message}")]
    RateLimited {
        /// The server's message.
        message: String,
        /// The server's retry delay.
        retry_after: Option<Duration>,
    },
    /// No connection, no response in time, a TLS handshake that failed over the server's certificate, or gRPC
    /// `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNKNOWN`, `CANCELLED`, `ABORTED`, `DATA_LOSS`.
    #[error("no usable response from Temporal: {message}")]
    Unreachable {
        /// The error's text.
        message: String,
    },
    /// gRPC `UNAUTHENTICATED` or `PERMISSION_DENIED`; a client certificate that the server refused; credentials that cannot
    /// be read.
    #[error("invalid credentials for Temporal: {message}")]
    CredentialsInvalid {
        /// The error's text.
        message: String,
    },
    /// A Secret of the connection, or a key in it, does not exist.
    #[error("could not read the credentials: {message}")]
    SecretNotFound {
        /// The Secret and the key.
        message: String,
    },
    /// There is no connection: the object that the spec names does not exist, or may not be used.
    #[error("{message}")]
    Unresolved {
        /// The reason for it.
        reason: Reason,
        /// The cause and the remedy, in a sentence.
        message: String,
    },
    /// gRPC `NOT_FOUND`.
    #[error("not found in Temporal: {message}")]
    NotFound {
        /// What does not exist.
        what: Missing,
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: the conflict token is stale. Describe, decide, and try again.
    #[error("the deployment changed in Temporal after Windlass read it: {message}")]
    Conflict {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: another identity manages the deployment.
    #[error("another identity manages the deployment: {message}")]
    OwnedByOther {
        /// The manager's identity, if the server reports it.
        manager: Option<Identity>,
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: the version lacks a task queue that the current one has.
    #[error("the version does not poll a task queue of the current version: {message}")]
    MissingTaskQueues {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION`: Temporal has seen no worker of the version.
    #[error("the version has no pollers: {message}")]
    NoPollers {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a pinned start: the version is listed, but not yet known to all of Temporal's
    /// services.
    #[error("not all services of Temporal know the version yet: {message}")]
    VersionNotReady {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: workers of the version polled within the last minutes.
    #[error("the version has pollers: {message}")]
    VersionHasPollers {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: pinned workflows may run on the version.
    #[error("the version is draining: {message}")]
    VersionDraining {
        /// The server's message.
        message: String,
    },
    /// gRPC `FAILED_PRECONDITION` of a delete: the version is current or ramping.
    #[error("the version is current or ramping: {message}")]
    VersionRouted {
        /// The server's message.
        message: String,
    },
    /// gRPC `RESOURCE_EXHAUSTED` of the start of a batch operation: as many run in the namespace as it allows.
    #[error("another batch operation runs in the Temporal namespace: {message}")]
    TooManyBatches {
        /// The server's message.
        message: String,
    },
    /// Any other gRPC `FAILED_PRECONDITION`, and `INVALID_ARGUMENT`, `OUT_OF_RANGE`, `UNIMPLEMENTED`, `ALREADY_EXISTS`.
    #[error("Temporal rejects the request: {message}")]
    Refused {
        /// The server's message.
        message: String,
    },
}
