//! The controller of `WorkerDeployments`, unmodified, on the simulated cluster and a played Temporal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod builds;
mod deletion;
mod gates;
mod killed;
mod limits;
mod lost;
mod rollouts;
mod stage;
mod sunset;
