//! The planner: decisions and status as pure functions of the facts. No I/O, no clock.

pub mod begin;
pub mod build;
pub mod decide;
pub mod deletion;
pub mod evacuate;
pub mod facts;
pub mod forecast;
pub mod hooks;
pub mod recipe;
pub mod routing;
pub mod secrets;
pub mod status;
pub mod sunset;
pub mod verdicts;

#[cfg(test)]
mod tests;

pub use build::Target;
pub use decide::{Cause, Decision, decide};
pub use evacuate::PlanKind;
pub use facts::{Facts, TemporalState, Version, Workers};
pub use secrets::WorkerSecrets;
