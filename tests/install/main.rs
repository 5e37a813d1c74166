//! An administrator's work: installation with the chart or kustomize, upgrade, uninstallation, and monitoring with
//! Prometheus, on a real control plane whose nodes run the operator as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]

mod chart;
#[path = "../systems/cluster.rs"]
mod cluster;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod debian;
mod documented;
mod granted;
mod helm;
mod image;
mod installed;
mod krew;
mod monitored;
mod monitors;
mod published;
mod references;
mod roles;
mod rules;
mod two;
