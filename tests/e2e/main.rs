//! What a user sees, on a real control plane: the operator runs as the binary that is shipped, as its own
//! ServiceAccount, one for each test's namespace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../controlplane/mod.rs"]
mod controlplane;
mod kit;

mod rollout;
