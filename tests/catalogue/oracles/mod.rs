//! The six oracles of FAULTS.md.

mod end;
pub mod panics;
mod plans;
mod safety;
mod state;
mod words;
mod writes;

pub use end::{End, condition, end_of, is_gone, is_well, says_so, summary};
pub use writes::trace;

use std::collections::BTreeMap;

use windlass::operator::Health;

use crate::faults::{self, Fault};
use crate::point::Point;
use crate::run::Report;
use crate::world::World;

/// What is known of a run that is over.
pub struct Evidence<'a> {
    pub world: &'a World,
    pub point: &'a Point,
    /// The store's version, and the length of the audit log, when the change was made.
    pub first_version: u64,
    pub first_entry: usize,
    pub end: &'a End,
    /// Tasks that were alive and watches that were open at the end.
    pub left: (usize, usize),
    pub baseline: Option<&'a Report>,
    pub failures: Vec<String>,
}

impl Evidence<'_> {
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    pub fn strikes(&self, is: impl Fn(&Fault) -> bool) -> bool {
        self.point.strikes.iter().any(|s| is(&faults::named(&s.fault).fault))
    }
}

/// Holds a run that is over against every oracle that can wait for its end. Answers with the operator's
/// successful writes, and with its busiest minute.
pub fn examine(evidence: &mut Evidence<'_>) -> (BTreeMap<String, u32>, u32) {
    if let Some(baseline) = evidence.baseline {
        for line in end::difference(&baseline.end, evidence.end) {
            // Where everything goes, a node whose turn had not come never had a claim.
            let never_made = line.starts_with("PersistentVolumeClaim") && line.ends_with("is missing");
            let is_the_end = evidence.strikes(|f| matches!(f, Fault::Person(deed) if deed.is_the_end()));
            if !(is_the_end && never_made) {
                evidence.fail(format!("oracle 1: {line}"));
            }
        }
    }
    hoard(evidence);
    safety::examine(evidence);
    writes::examine(evidence)
}

/// What grows for ever shows itself in tasks and watches that outlive what they were for.
fn hoard(evidence: &mut Evidence<'_>) {
    let Some(baseline) = evidence.baseline else { return };
    // A replica that stands by, and a request that is held back for ever, are of the catalogue's making.
    let more = 16;
    let ((tasks, watches), (clean_tasks, clean_watches)) = (evidence.left, baseline.left);
    if tasks > clean_tasks + more || watches > clean_watches + more {
        evidence.fail(format!(
            "oracle 6: {tasks} tasks and {watches} watches at the end, {clean_tasks} and {clean_watches} in the clean run"
        ));
    }
}

/// How many reconciles the operator has counted.
pub fn reconciles(health: &Health) -> u64 {
    let text = health.metrics.text();
    let counts = text.lines().filter(|line| line.starts_with("windlass_reconciles_total"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
