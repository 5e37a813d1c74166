//! Versioned workers against a real Temporal, with real workers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod credentials;
mod frontend;
mod lost;
mod person;
mod programs;
mod stage;
mod traps;
mod worker;
