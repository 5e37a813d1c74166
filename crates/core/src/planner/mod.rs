//! What should happen: pure functions from what was observed to what is to be done. No I/O, no clock.

pub mod fleet;
pub mod hooks;
pub mod node;
