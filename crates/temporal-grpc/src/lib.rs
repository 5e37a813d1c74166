//! Speaks with Temporal by gRPC: the port of [`windlass_temporal`], carried out.
//!
//! [`GrpcConnections`] hands out a client for each connection that an object asks for. Objects that ask for the same one
//! share the TCP connection below it, and the pace at which a namespace of Temporal is asked. Credentials are read from
//! Secrets, through [`Secrets`]: this crate knows no Kubernetes.
//!
//! - No request waits for more than ten seconds, and none is sent twice: what came of a write that was not answered is
//!   seen by looking.
//! - An API key goes through TLS only.
//! - What Temporal refuses becomes one kind of [`TemporalError`] for each thing that can be done about it. Temporal says
//!   most of them by one code and a sentence, so the sentences are read ([`refusals`]); the tests against a real server
//!   notice when a new version of it says them in other words.
//!
//! [`TemporalError`]: windlass_temporal::port::TemporalError

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
