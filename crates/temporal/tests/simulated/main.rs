//! The controller of `WorkerDeployments`, unmodified, on the simulated cluster and a played Temporal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod agrees;
mod builds;
mod deletion;
mod faults;
mod fields;
mod gates;
mod hands;
mod hooks;
mod idle;
mod killed;
mod limits;
mod lost;
mod reasons;
mod rollouts;
mod shown;
mod stage;
mod sunset;
mod upset;
mod workers;
