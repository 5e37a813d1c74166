//! Tests of the engine's invariants, over task types that exist only here.

mod control;
mod crash;
mod env;
mod executor;
mod foreign;
mod holding;
mod registry;
mod tasks;
