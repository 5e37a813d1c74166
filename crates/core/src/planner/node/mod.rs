//! Decisions about one node: what it runs, whether it needs a plan, and what its status contains.

pub mod cause;
pub mod decide;
pub mod facts;
pub mod problem;
pub mod status;

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;

pub use decide::{NodeDecision, decide};
pub use facts::{LiveStatefulSet, NodeFacts, PodFacts, RenderedTarget, Running, StatefulSetFact, Template};
