//! Reports of fleets for people: progress, causes, and the state of nodes. Objects in, values out, which the
//! terminal, the page and `-o json` show alike. Pure: no I/O, no clock.
//!
//! The types are the output of `windlass status -o json` (docs/reference/terminal.md): a field keeps its name and its meaning.

pub mod chain;
pub mod chart;
mod estimate;
mod fleet;
mod glyphs;
mod images;
mod node;
mod requests;
mod seen;
mod stateful_sets;
#[cfg(test)]
pub mod tests;
pub mod timeline;
mod tree;
mod typed;
mod words;

pub use estimate::{about, node_seconds};
pub use fleet::{FleetReport, PlanReport, RolloutReport, TaskReport, Verdict, observer_behind, worst_first};
pub use glyphs::task_glyph;
pub use node::{Health, NodeReport};
pub use seen::{Seen, SeenPod};
pub use stateful_sets::{SeenStatefulSets, StatefulSetsReport, short as short_revision};
pub use tree::{Tree, group_words, pods_words};
pub use typed::{Typed, quoted};
pub use words::{age, clock_time, tag};
