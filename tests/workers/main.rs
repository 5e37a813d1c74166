//! Versioned workers against a real Temporal, with real workers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod agrees;
mod autoscaler;
mod builds;
mod calls;
mod credentials;
mod deletion;
mod hooks;
mod liar;
mod lies;
mod limits;
mod lost;
mod outages;
mod paces;
mod revived;
mod rollouts;
mod stage;
mod terminal;
mod traps;
mod waits;
mod worker;
