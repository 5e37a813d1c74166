//! The gRPC client of Temporal: implements the port of [`windlass_temporal`].
//!
//! [`GrpcConnections`] returns a client for the connection of each object. Objects with the same settings share the TCP
//! connection and the rate limit of the Temporal namespace. [`Secrets`] provides the credentials: this crate does not
//! depend on Kubernetes.
//!
//! - Each request has a time-out of ten seconds, and none is sent twice: the next describe shows whether a write without
//!   an answer took effect.
//! - An API key is sent through TLS only.
//! - Each error that needs a different reaction is a variant of [`TemporalError`]. Temporal reports most of them with one
//!   code and a sentence, so [`refusals`] matches the sentences. The tests against a real server detect changed sentences.
//!
//! [`TemporalError`]: windlass_temporal::port::TemporalError

mod batch;
mod channel;
mod client;
mod connections;
mod credentials;
mod gates;
mod pace;
mod read;
pub mod refusals;
mod secrets;

/// Temporal's messages and tonic, for calls that the port does not have, such as starting workflows.
pub use {temporalio_protos as messages, tonic};

pub use connections::GrpcConnections;
pub use secrets::{Secret, Secrets};
