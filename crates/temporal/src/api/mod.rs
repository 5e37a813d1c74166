//! The custom resource WorkerDeployment.

pub mod connection;

pub use connection::{ApiKeySecret, Connection, Tls};
