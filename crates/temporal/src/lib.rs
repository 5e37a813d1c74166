//! Versioned Temporal workers. A WorkerDeployment runs the versions of a fleet of stateless workers side by side:
//! workflows that are pinned to an old build finish there, new ones start on the current build.
//!
//! [`port`] is the interface to Temporal, and the only way in which its routing is changed. It is independent of the
//! protocol: another crate implements it with gRPC. [`planner`] decides, and is pure; [`workers::Workers`] is the
//! controller.

#![allow(clippy::doc_markdown, reason = "names such as WorkerDeployment occur often in these comments")]

pub mod api;
pub mod children;
pub mod connect;
pub mod context;
mod finalize;
pub mod hooks;
mod inputs;
pub mod metrics;
pub mod observe;
pub mod per_version;
pub mod planner;
pub mod port;
pub mod reconcile;
pub mod render;
pub mod resources;
pub mod scope;
mod secrets;
pub mod tasks;
mod usage;
pub mod workers;

pub use metrics::Metrics;
pub use workers::Workers;
