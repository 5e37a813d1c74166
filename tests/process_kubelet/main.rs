//! The kubelet that runs processes, on the real control plane, beside the played kubelets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "as tests read best")]

#[path = "../controlplane/mod.rs"]
mod controlplane;
mod environment;
mod failing;
mod kit;
mod logs;
mod order;
mod owners;
mod probes;
mod restarted;
mod stopping;
