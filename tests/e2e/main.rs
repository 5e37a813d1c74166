//! What a user sees, on a real control plane: the operator runs as the binary that is shipped, as its own
//! ServiceAccount, one for each test's namespace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod change;
mod children;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod edits;
mod foreign;
mod grants;
mod held;
mod killed;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod kit;
mod leader;
mod plans;
mod rollout;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod sampler;
mod stall;
mod supersede;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod tools;
mod traces;
mod wave;
mod waves;
