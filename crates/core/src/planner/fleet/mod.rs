//! A fleet: who may be granted what, whether a rollout starts or ends, and what the status says.

pub mod create;
pub mod decide;
pub mod facts;
pub mod failed;
mod filling;
pub mod forecast;
pub mod hooks;
pub mod leave;
pub mod possible;
pub mod progress;
pub mod release;
pub mod report;
pub mod sets;
pub mod status;
pub mod verdicts;
pub mod wave;

#[cfg(test)]
mod tests;

pub use decide::{Cause, FleetDecision, decide};
pub use facts::{ChildFacts, Conflict, FleetFacts, Rendering, Scope, SidecarFacts};
pub use sets::{SetFacts, SetRollout, Way};
pub use wave::{ABORT, Clause, Grant, may_grant, next_grants, pins};
