//! Versioned workers against a real Temporal, with real workers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod agrees;
mod autoscaler;
mod builds;
mod calls;
#[path = "../../crates/temporal/src/fake/cases/mod.rs"]
mod cases;
#[path = "../systems/cluster.rs"]
mod cluster;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod credentials;
mod deletion;
mod farm;
mod frontend;
mod hooks;
mod liar;
mod lies;
mod limits;
mod lost;
mod outages;
mod paces;
mod person;
mod programs;
mod revived;
mod rollouts;
mod running;
mod stage;
mod terminal;
mod traps;
mod waits;
mod worker;

// The cases, shared with the fake Temporal, name this module so.
use windlass_temporal::port;
