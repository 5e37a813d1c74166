//! Versioned workers against a real Temporal, with real workers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
#[path = "../systems/cluster.rs"]
mod cluster;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod credentials;
mod farm;
mod frontend;
mod lost;
mod outages;
mod person;
mod programs;
mod rollouts;
mod stage;
mod traps;
mod worker;
