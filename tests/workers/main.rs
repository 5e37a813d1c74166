//! Versioned workers against a real Temporal, with real workers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod agrees;
mod connections;
mod credentials;
mod dashboard;
mod deletion;
mod evacuation;
mod hooks;
mod limits;
mod lost;
mod migration;
mod outages;
mod per_version;
mod pools;
mod rollouts;
mod stage;
mod terminal;
mod traps;
mod waits;
mod worker;
