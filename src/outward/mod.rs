//! The HTTP requests that the operator sends to servers other than the API server: hook endpoints, Prometheus, sidecars
//! and the trace collector. One client sends them all. The servers are not trusted: an exchange is bounded in time and
//! size, follows no redirect, and uses no proxy from the environment.
//!
//! Certificates and credentials come from Secrets ([`secrets`]) or from files of the operator ([`files`]), and are read
//! when a request is sent. They never occur in an error, in a log line or in `Debug` output.

mod access;
mod client;
mod failure;
mod files;
mod pem;
mod secrets;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use access::Credentials;
pub use access::{Access, Origin, Trust};
pub use client::{HttpClient, KeptConnections, MAX_ANSWER_BYTES, Reply, Request};
pub use files::FileAccess;
pub use pem::is_server_name;
pub use secrets::{HeaderText, OutwardSettings, SecretKey, Secrets};
