//! Decisions about a fleet: which nodes get grants, whether a rollout starts or ends, and what the status contains.

mod blame;
mod blocker;
pub mod budget;
pub mod child;
mod clock;
pub mod create;
pub mod damage;
pub mod decide;
pub mod decision;
pub mod drain;
pub mod facts;
pub mod failed;
pub mod forecast;
pub mod gate;
pub mod hooks;
mod idle;
mod initial_fill;
pub mod leave;
pub mod pods;
pub mod possible;
pub mod progress;
mod refresh;
pub mod release;
pub mod report;
pub mod requests;
pub mod sets;
pub mod state;
pub mod status;
pub mod topology;
pub mod verdicts;
pub mod wave;

#[cfg(test)]
mod tests;

pub use blocker::Blocker;
pub use child::{ChildFacts, Conflict, GrantTime, SidecarFacts};
pub use decide::decide;
pub use decision::{Cause, FleetDecision, RolloutTarget, Start, Strategy};
pub use facts::{FleetFacts, FleetKind, Group, Rendering, Rollout};
pub use refresh::{WAITS_TO_BE_RESUMED, refresh};
pub use sets::{SetFacts, SetRollout};
pub use topology::{Domain, Order};
pub use wave::{Clause, Grant, may_grant, next_grants, pins};
