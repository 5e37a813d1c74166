//! The controller of `WorkerDeployments`, unmodified, on the simulated cluster and a fake Temporal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod agrees;
mod builds;
mod connections;
mod credentials;
mod deletion;
mod evacuation;
mod fake_hooks;
mod faults;
mod fields;
mod forecasts;
mod gates;
mod hooks;
mod idle;
mod killed;
mod limits;
mod lost;
mod paced;
mod per_version;
mod pools;
mod reasons;
mod rollouts;
mod shown;
mod stage;
mod sunset;
mod upset;
mod workers;
