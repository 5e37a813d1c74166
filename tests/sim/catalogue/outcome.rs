//! The result of a sweep.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::catalogue::scenario::Scenario;
use crate::catalogue::sweep::{self, Outcome};

impl Outcome {
    /// A summary of what was run.
    pub fn summary(&self) -> String {
        let how = if cfg!(debug_assertions) { "not optimised" } else { "optimised (`--release`)" };
        let part = match self.shard {
            sweep::Shard::ALL => String::new(),
            sweep::Shard { number, of } => format!("Part {number} of {of}: "),
        };
        format!(
            "{part}{} of {} points in {} scenarios, {} failures, {:.0} s on {} threads: {:.0} points a second, {:.1} ms of \
             CPU for each. The program was {how}.",
            self.points,
            self.all,
            Scenario::all().len(),
            self.failed.len(),
            self.seconds,
            self.threads,
            f64::from(self.points as u32) / self.seconds,
            self.cpu_seconds * 1000.0 / f64::from(self.points.max(1) as u32),
        )
    }

    /// The failures, each with the command that replays it.
    fn complaint(&self) -> String {
        let mut text = String::new();
        let mut by_fault: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.failed.iter().filter_map(|(point, _)| point.strikes.first()) {
            *by_fault.entry(&name.fault).or_default() += 1;
        }
        let _ = writeln!(text, "{by_fault:?}");
        for (point, failures) in self.failed.iter().take(60) {
            let _ = writeln!(text, "{}", point.command());
            for failure in failures.iter().take(4) {
                let _ = writeln!(text, "    {failure}");
            }
        }
        text
    }

    pub fn assert_none_failed(&self) {
        let (failed, points) = (self.failed.len(), self.points);
        assert!(failed == 0, "{failed} of {points} fail:\n{}", self.complaint());
    }
}
