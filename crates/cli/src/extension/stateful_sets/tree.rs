//! Draws a StatefulSetRollout as a tree: its StatefulSets, and below each its pods. Pure.

use chrono::{DateTime, Utc};
use ratatui::style::Stylize;
use serde_json::{Value, json};

use super::STATEFUL_SETS;
use crate::report::{StatefulSetsReport, Tree, Verdict, pods_words, short_revision};
use crate::status::Report;
use crate::status::tree::{self, Shown};
use crate::target::{Kind, Target};
use crate::text::{Line, Terminal};
use windlass_core::api::StatefulSetStatus;

/// Up to so many StatefulSets are named each, whatever their state.
const FEW: usize = 3;
/// The least rows for the pods of a StatefulSet.
const LEAST_ROWS: usize = 3;

impl Report for StatefulSetsReport {
    fn verdict(&self) -> Verdict {
        self.fleet.verdict
    }

    fn target(&self) -> Target {
        Target { kind: Kind::Other(STATEFUL_SETS), name: self.fleet.name.clone() }
    }

    fn name(&self, namespaces: bool) -> String {
        tree::name(&self.fleet, namespaces)
    }

    fn waiting_for(&self) -> &str {
        &self.fleet.waiting_for
    }

    fn summary(&self) -> &str {
        &self.fleet.summary
    }

    fn document(&self) -> Value {
        json!(self)
    }

    fn tree(&self, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
        let mut lines = tree::top(&self.fleet, STATEFUL_SETS.short(), now, terminal, shown);
        lines.extend(branches(self, now, terminal, shown));
        lines
    }

    fn healthy(&self, namespaces: bool, width: usize) -> Line {
        let fleet = &self.fleet;
        let name = self.name(namespaces);
        let mut line = tree::healthy_start(&name, width, &fleet.strategy, &fleet.summary);
        let serving = match self.stateful_sets.as_slice() {
            [_] => {
                let groups = fleet.serving();
                groups.iter().map(|(_, runs, count)| pods_words(runs, *count)).collect::<Vec<_>>().join(", ")
            }
            sets => {
                let (ready, replicas) = sets.iter().fold((0, 0), |(r, n), s| (r + s.ready, n + s.replicas));
                format!("{ready} of {replicas} pods of {} StatefulSets are ready", sets.len())
            }
        };
        line.push_span(format!("   {serving}"));
        if !fleet.paused_by.is_empty() {
            line.push_span(format!("   paused by {}", fleet.paused_by).yellow());
        }
        for remark in &fleet.remarks {
            line.push_span(format!("   {remark}").yellow());
        }
        line
    }

    fn line(&self) -> Line {
        tree::line(&self.fleet)
    }
}

fn branches(
    report: &StatefulSetsReport,
    now: DateTime<Utc>,
    terminal: Terminal,
    shown: Shown<'_>,
) -> Vec<Line> {
    let sets = &report.stateful_sets;
    let is_named = |set: &&StatefulSetStatus| shown.all || sets.len() <= FEW || !report.is_at_rest(set);
    let (named, at_rest): (Vec<&StatefulSetStatus>, Vec<_>) = sets.iter().partition(is_named);
    let rows = (shown.rows / named.len().max(1)).max(LEAST_ROWS);
    let width = |of: fn(&StatefulSetStatus) -> String| {
        named.iter().map(|set| of(set).chars().count()).max().unwrap_or_default()
    };
    let (names, revisions) = (width(|set| set.name.clone()), width(revisions));
    let mut lines = Vec::new();
    for (index, set) in named.iter().enumerate() {
        let is_last = at_rest.is_empty() && index + 1 == named.len();
        let mut line = Line::from(if is_last { "└─ " } else { "├─ " }.dim());
        line.push_span(format!("{:<names$}", set.name).bold());
        line.push_span(format!("   {:<revisions$}   {}", self::revisions(set), words(set)));
        if !set.held && !set.uid.is_empty() {
            line.push_span("   not held".yellow());
        }
        lines.push(terminal.cut(&line));
        let pods: Vec<_> = report.pods(set).collect();
        let below = Tree::of(&pods, shown.all, rows);
        let prefix = if is_last { "   " } else { "│  " };
        let group = |_, runs: &str, count| pods_words(runs, count);
        lines.extend(tree::drawn_below(prefix, &below, "", group, now, terminal, shown.all));
    }
    if !at_rest.is_empty() {
        let pods: i32 = at_rest.iter().map(|set| set.replicas).sum();
        let (s, are) = if at_rest.len() == 1 { ("", "is") } else { ("s", "are") };
        let mut line = Line::from("└─ ".dim());
        line.push_span("●".green());
        line.push_span(format!(" {} StatefulSet{s} with {pods} pods {are} up to date", at_rest.len()));
        lines.push(line);
    }
    lines
}

/// `5b7d9c8f6 → 7c6f5d4b8`, or the only revision.
pub fn revisions(set: &StatefulSetStatus) -> String {
    let (current, update) =
        (short_revision(&set.current_revision, &set.name), short_revision(&set.update_revision, &set.name));
    if current == update || current.is_empty() {
        return update.to_owned();
    }
    format!("{current} → {update}")
}

/// Its pods in a few words.
pub fn words(set: &StatefulSetStatus) -> String {
    if set.uid.is_empty() {
        return "it does not exist yet".to_owned();
    }
    let s = if set.replicas == 1 { "" } else { "s" };
    format!("{} replica{s}, {} ready, {} updated", set.replicas, set.ready, set.updated)
}

#[cfg(test)]
pub mod tests;
