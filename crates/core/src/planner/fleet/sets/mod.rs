//! Sets of nodes: BlueGreen and HardFork create a set next to the active one, which then takes over. This module has
//! the facts and decisions about sets, their names, and their status. Pure.

pub mod decide;
pub mod facts;
pub mod naming;
pub mod rollout;
pub mod serving;
pub mod stage;
pub mod status;

pub use super::decision::Strategy;
pub use rollout::{SetFacts, SetRollout, has_halted, how_to_promote};
