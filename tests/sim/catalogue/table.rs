//! The result of a sweep, as a table and as the page in `docs/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::catalogue::faults;
use crate::catalogue::scenario::Scenario;
use crate::catalogue::sweep::{self, Outcome, Row};

const PAGE: &str = include_str!("page.md");

impl Outcome {
    /// The table in Markdown: a line for each fault and kind of scenario.
    pub fn table(&self) -> String {
        let head = ["scenarios", "fault", "points run", "failures", "seconds of CPU"];
        let mut text = format!("| {} |\n|---|---|---|---|---|\n", head.join(" | "));
        for ((scenario, family), row) in &self.rows {
            line(&mut text, scenario, family, row);
        }
        let mut sum = Row::default();
        let mut families: BTreeMap<&str, Row> = BTreeMap::new();
        for ((_, family), row) in &self.rows {
            families.entry(family).or_default().add(row);
            sum.add(row);
        }
        for (family, row) in &families {
            line(&mut text, "all", family, row);
        }
        line(&mut text, "all", "all", &sum);
        text
    }

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
            self.rows.values().map(|row| row.seconds).sum::<f64>() * 1000.0
                / f64::from(self.points.max(1) as u32),
        )
    }

    /// The page: what the catalogue is, what was run, and how to run it again.
    pub fn page(&self) -> String {
        let scenarios = Scenario::all();
        let names: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
        let held_back = faults::NOT_WALKED
            .iter()
            .chain(&faults::FAILING)
            .map(|(begins, why)| format!("`{begins}`, since {why}"));
        let held_back: Vec<String> = held_back.collect();
        let not_walked = if held_back.is_empty() {
            "Every fault of the table is walked.".to_owned()
        } else {
            format!("Not walked but where they are asked for by name: {}.", held_back.join("; "))
        };
        PAGE.replace("{summary}", &self.summary())
            .replace("{not_walked}", &not_walked)
            .replace("{scenarios}", &names.join("`, `"))
            .replace("{table}", self.table().trim_end())
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

fn line(text: &mut String, scenario: &str, family: &str, row: &Row) {
    let Row { points, failures, seconds } = row;
    let _ = writeln!(text, "| {scenario} | {family} | {points} | {failures} | {seconds:.1} |");
}
