//! Versioned Temporal workers. A WorkerDeployment keeps the versions of a fleet of stateless workers side by side:
//! workflows that are pinned to an old build go on there until they end, new ones go to the current build.
//!
//! [`port`] is all that is asked of Temporal, and the only way in which its routing is changed. It knows no protocol: a
//! client of gRPC implements it elsewhere. [`planner`] decides, and is pure; [`workers::Workers`] runs.

#![allow(
    clippy::doc_markdown,
    reason = "the field's names, WorkerDeployment and Temporal's, are read often here"
)]

pub mod api;
pub mod children;
pub mod cluster;
pub mod context;
pub mod events;
mod goodbye;
pub mod hooks;
pub mod metrics;
pub mod observe;
pub mod planner;
#[cfg(any(test, feature = "test-support"))]
pub mod played;
pub mod port;
pub mod reconcile;
pub mod render;
pub mod scope;
pub mod tasks;
pub mod workers;

pub use metrics::Metrics;
pub use workers::Workers;
