//! The planner: pure functions from what was observed to what has to be done. No I/O, no clock.

pub mod fleet;
pub mod growth;
pub mod hooks;
pub mod node;
pub mod waits;
pub mod window;
