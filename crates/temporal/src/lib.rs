//! Versioned Temporal workers. A WorkerDeployment keeps the versions of a fleet of stateless workers side by side:
//! workflows that are pinned to an old build go on there until they end, new ones go to the current build.
//!
//! [`port`] is all that is asked of Temporal, and the only way in which its routing is changed. It knows no protocol: a
//! client of gRPC implements it elsewhere.

#![allow(
    clippy::doc_markdown,
    reason = "the field's names, WorkerDeployment and Temporal's, are read often here"
)]

pub mod api;
pub mod planner;
pub mod port;
