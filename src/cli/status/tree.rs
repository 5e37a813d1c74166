//! A fleet as a tree, as `windlass status` and the demo draw it, and as one line. Pure: a report in, lines out.

use chrono::{DateTime, Utc};

use crate::api::HookStatus;
use crate::cli::text::{Line, Look, Style};
use crate::engine::TaskState;
use crate::report::{
    FleetReport, Health, NodeReport, RolloutReport, Verdict, about, clock_time, group_words, task_glyph,
};

/// What the glyphs mean.
#[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only the demo tells a story"))]
pub const LEGEND: [&str; 2] = [
    "○ serves what was before    ◐ on its way    ✗ cannot run, or does not serve",
    "◉ serves what is wanted     ● and has for minReadySeconds: its place is free",
];

/// How much of the nodes is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shown {
    /// Whether nodes that are well are named, too.
    pub all: bool,
    /// How many lines there are for nodes.
    pub rows: usize,
    /// Whether the namespace is written before the name.
    pub namespaces: bool,
}

/// How far the lines under a fleet's name are indented.
const INDENT: usize = 5;
/// The bar's columns, where there is room, and where there is little.
const BAR: [usize; 2] = [20, 10];

/// The lines of a fleet's tree.
pub fn tree(report: &FleetReport, now: DateTime<Utc>, look: Look, shown: Shown) -> Vec<Line> {
    let mut lines = vec![head(report, look, shown.namespaces)];
    let mut under = |style: Style, line: Option<Line>| {
        let Some(line) = line else { return };
        let mut indented = Line::of(style, " ".repeat(INDENT));
        for (style, text) in line.pieces() {
            indented.add(*style, text.clone());
        }
        lines.extend(indented.folded(look, INDENT));
    };
    under(Style::Plain, plan(report));
    let ill = matches!(report.verdict, Verdict::Refused | Verdict::Stalled);
    let style = if ill { Style::Red } else { Style::Plain };
    under(style, (!report.waiting_for.is_empty()).then(|| Line::of(style, report.waiting(now))));
    for hook in &report.hooks {
        under(Style::Plain, Some(hook_line(report, hook)));
    }
    for unread in &report.unread {
        under(Style::Dim, Some(Line::of(Style::Dim, unread)));
    }
    lines.extend(branches(report, now, look, shown));
    lines
}

/// A fleet of which nothing needs to be told: one line.
pub fn healthy(report: &FleetReport, namespaces: bool, width: usize) -> Line {
    let mut line = Line::of(Style::Green, "● ");
    let name = name(report, namespaces);
    line.add(Style::Bold, format!("{name:<width$}"));
    line.add(Style::Dim, format!("   {:<9}", report.strategy));
    line.add(Style::Plain, format!("   {:<8}", report.summary));
    line.add(Style::Plain, format!("   {}", serving(report)));
    line
}

/// A fleet's name, after its namespace where those of several are shown.
pub fn name(report: &FleetReport, namespaces: bool) -> String {
    if namespaces { format!("{}/{}", report.namespace, report.name) } else { report.name.clone() }
}

fn serving(report: &FleetReport) -> String {
    let groups = report.serving();
    let group = |(_, tag, count): &(Health, String, usize)| group_words(tag, *count);
    groups.iter().map(group).collect::<Vec<_>>().join(", ")
}

/// The fleet in one line: a glyph for each of a few nodes, and what is waited for.
pub fn line(report: &FleetReport) -> Line {
    let wave = report.rollout.as_ref().and_then(|rollout| rollout.wave);
    let wave = wave.map_or_else(String::new, |wave| format!("wave {}/{}", wave.number, wave.of));
    let mut line = Line::of(Style::Plain, format!("{:<12} ", report.phase));
    let summary = report.rollout.as_ref().map_or("", |_| report.summary.as_str());
    line.add(Style::Plain, format!("{summary:<14} {wave:<9}  "));
    if report.nodes.len() <= GLYPHS {
        for node in &report.nodes {
            let (glyph, style) = glyph(node.health);
            line.add(style, glyph);
            line.add(Style::Plain, " ");
        }
    } else {
        line.add(Style::Plain, serving(report));
    }
    line.add(Style::Plain, format!("  {}", report.waiting_for));
    line
}

/// As many nodes have a glyph each in one line.
const GLYPHS: usize = 100;

fn glyph(health: Health) -> (&'static str, Style) {
    let style = match health {
        Health::Failed | Health::Down => Style::Red,
        Health::Moving | Health::Settling => Style::Yellow,
        Health::Before => Style::Cyan,
        Health::Serving => Style::Green,
    };
    (health.glyph(), style)
}

fn head(report: &FleetReport, look: Look, namespaces: bool) -> Line {
    let mut line = Line::of(Style::Bold, name(report, namespaces));
    line.add(Style::Dim, format!("   {}", report.strategy));
    let style = match report.verdict {
        Verdict::Refused | Verdict::Stalled => Style::Red,
        Verdict::Progressing => Style::Yellow,
        Verdict::UpToDate => Style::Green,
    };
    line.add(style, format!("   {}", report.summary));
    if let Some(aside) = report.aside() {
        line.add(style, format!(" ({aside})"));
    }
    let Some(rollout) = &report.rollout else { return line };
    let tail = tail(rollout);
    let room = look.width.saturating_sub(line.width() + 3 + tail.chars().count());
    if let Some(columns) = BAR.into_iter().find(|columns| *columns <= room) {
        let (done, left) = bar(rollout, columns);
        line.add(Style::Green, format!("   {done}"));
        line.add(Style::Dim, left);
    }
    line.add(Style::Plain, tail);
    line
}

fn bar(rollout: &RolloutReport, columns: usize) -> (String, String) {
    let total = usize::try_from(rollout.total).unwrap_or_default().max(1);
    let done = usize::try_from(rollout.updated).unwrap_or_default().min(total) * columns / total;
    ("━".repeat(done), "─".repeat(columns - done))
}

/// What is said after the bar: the wave or the stage, and the time.
fn tail(rollout: &RolloutReport) -> String {
    let (place, elapsed) = (rollout.place(), rollout.elapsed());
    let left =
        rollout.about_left_seconds.map(|left| format!(", {} left", about(chrono::TimeDelta::seconds(left))));
    format!("  {place}   {elapsed}{}", left.unwrap_or_default())
}

/// `1.1 → 1.2 (plan 495ff12537: update-node-specs ✓, await-spec-update ◐, mark-ready ○)`, of a rollout.
fn plan(report: &FleetReport) -> Option<Line> {
    let rollout = report.rollout.as_ref()?;
    let mut line = Line::of(Style::Plain, rollout.versions());
    let Some(plan) = &report.plan else { return Some(line) };
    line.add(Style::Plain, format!(" (plan {}: ", plan.id));
    for (index, task) in plan.tasks.iter().enumerate() {
        let hook = if task.hook.is_empty() { String::new() } else { format!(" {}", task.hook) };
        line.add(Style::Plain, format!("{}{}{hook}", if index == 0 { "" } else { ", " }, task.type_));
        let style = match task.state {
            TaskState::Pending | TaskState::Skipped => Style::Dim,
            TaskState::Running => Style::Yellow,
            TaskState::Complete => Style::Green,
            TaskState::Failed => Style::Red,
        };
        line.add(style, format!(" {}", task_glyph(task.state)));
    }
    line.add(Style::Plain, ")");
    Some(line)
}

/// A hook that somebody has to look at, with what to write.
fn hook_line(report: &FleetReport, hook: &HookStatus) -> Line {
    let of = if hook.node.is_empty() { String::new() } else { format!(" of {}", hook.node) };
    let name = format!("hook {}{of}", hook.hook);
    if hook.state == "AwaitingApproval" {
        let mut line = Line::of(Style::Yellow, format!("{name} waits for a person: "));
        line.add(Style::Plain, format!("windlass approve nd/{} --task {}", report.name, hook.task_id));
        return line;
    }
    let mut line = Line::of(Style::Red, format!("{name} failed"));
    line.add(Style::Plain, format!(" (task {}): {}", hook.task_id, hook.message));
    line
}

/// A line under the fleet.
enum Branch<'a> {
    Node(&'a NodeReport),
    Said(Line),
}

fn branches(report: &FleetReport, now: DateTime<Utc>, look: Look, shown: Shown) -> Vec<Line> {
    let tree = report.tree(shown.all, shown.rows);
    let mut branches: Vec<Branch<'_>> = tree.named.into_iter().map(Branch::Node).collect();
    if tree.hidden > 0 {
        let what = if shown.all { "" } else { " that do not serve; --all names each" };
        branches.push(Branch::Said(Line::of(Style::Dim, format!("… and {} more{what}", tree.hidden))));
    }
    for (health, tag, count) in &tree.groups {
        let mut line = Line::of(if *health == Health::Before { Style::Cyan } else { Style::Green }, "●");
        line.add(Style::Plain, format!(" {}", group_words(tag, *count)));
        branches.push(Branch::Said(line));
    }
    let columns = Columns::of(&branches, report.began_from());
    let last = branches.len().saturating_sub(1);
    branches
        .iter()
        .enumerate()
        .map(|(index, branch)| drawn(branch, index == last, &columns, now, look))
        .collect()
}

/// How wide the columns are, and what a node that runs nothing comes from.
struct Columns<'a> {
    name: usize,
    versions: usize,
    began_from: &'a str,
}

impl<'a> Columns<'a> {
    fn of(branches: &[Branch<'_>], began_from: &'a str) -> Self {
        let nodes =
            || branches.iter().filter_map(|b| if let Branch::Node(node) = b { Some(*node) } else { None });
        Self {
            name: nodes().map(|n| n.name.chars().count()).max().unwrap_or_default(),
            versions: nodes().map(|n| n.versions(began_from).chars().count()).max().unwrap_or_default(),
            began_from,
        }
    }
}

fn drawn(branch: &Branch<'_>, last: bool, columns: &Columns<'_>, now: DateTime<Utc>, look: Look) -> Line {
    let mut line = Line::of(Style::Dim, if last { "└─ " } else { "├─ " });
    let node = match branch {
        Branch::Said(said) => {
            for (style, text) in said.pieces() {
                line.add(*style, text.clone());
            }
            return line;
        }
        Branch::Node(node) => node,
    };
    let (glyph, style) = glyph(node.health);
    line.add(style, glyph);
    line.add(Style::Plain, format!(" {:<name$}", node.name, name = columns.name));
    let versions = node.versions(columns.began_from);
    line.add(Style::Plain, format!("   {versions:<width$}", width = columns.versions));
    let ill = matches!(node.health, Health::Failed | Health::Down);
    let since = node.since.filter(|_| ill).map(|since| format!("  since {}", clock_time(since, now)));
    let since = since.unwrap_or_default();
    let words = node.words();
    if !words.is_empty() {
        // Since when is worth more than the end of a long sentence.
        let room = look.width.saturating_sub(line.spelled(look.unicode).width() + 3 + since.len());
        let words = Line::of(Style::Plain, words);
        let words =
            if room > LEAST_WORDS { words.cut(Look { width: room, ..look }).plain() } else { words.plain() };
        line.add(if ill { Style::Red } else { Style::Dim }, format!("   {words}{since}"));
    }
    line
}

/// A sentence that has not even so many columns is cut where the line ends.
const LEAST_WORDS: usize = 12;
