//! One node: what it runs, whether it wants a plan, and what its status says.

pub mod decide;
pub mod facts;
pub mod problem;
pub mod status;

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;

pub use decide::{NodeDecision, decide};
pub use facts::{LiveSet, NodeFacts, PodFacts, RenderedTarget, Running, SetFact, Template};
