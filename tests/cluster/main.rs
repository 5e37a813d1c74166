//! Tests on a real control plane, and of the shipped program in real processes.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]
#![allow(clippy::needless_pass_by_value, reason = "as tests read best")]

mod bad_input;
mod conformance;
mod controlplane_self;
mod custom_task;
mod demo;
mod e2e;
mod install;
mod operator_log;
mod process_kubelet;
mod rbac;
mod rendering_controlplane;
mod screens;
mod systems;
