//! Sets of nodes: BlueGreen and HardFork make a set beside the one that serves, which then takes over. What is
//! known of sets, what is decided about them, what they are called, and what the status says of them. Pure.

pub mod decide;
pub mod facts;
pub mod lost;
pub mod naming;
pub mod rollout;
pub mod serving;
pub mod stage;
pub mod status;

pub use super::decision::Strategy;
pub use rollout::{SetFacts, SetRollout, has_halted, how_to_promote};
