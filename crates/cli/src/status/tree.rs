//! Draws a fleet as a tree, for `windlass status` and the demo, and as one line. Pure.

use chrono::{DateTime, Utc};
use ratatui::style::{Style, Stylize};
use ratatui::text::Span;

use crate::report::Typed;
use crate::report::{
    FleetReport, Health, NodeReport, PlanReport, RolloutReport, Tree, Verdict, about, clock_time, task_glyph,
};
use crate::text::{Line, NO_BREAK, Terminal, mapped};
use windlass_core::api::{HookState, HookStatus};
use windlass_engine::TaskState;

/// The legend of the glyphs.
#[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only used by the demo"))]
pub const LEGEND: [&str; 2] = [
    "○ available at the previous revision   ◐ in progress   ✗ failed or unavailable",
    "◉ ready, waiting for minReadySeconds   ● available at the target revision",
];

/// What of a tree to show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shown<'a> {
    /// True to list healthy nodes, too.
    pub all: bool,
    /// The most lines for nodes.
    pub rows: usize,
    /// True to print the namespace before the name.
    pub namespaces: bool,
    /// How suggested commands are typed.
    pub typed: &'a Typed,
}

/// The indentation below a fleet's name, in columns.
const INDENT: usize = 5;
/// The bar's width in columns, on wide and on narrow terminals.
const BAR: [usize; 2] = [20, 10];

/// The lines of a fleet's tree.
pub fn tree(report: &FleetReport, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
    let mut lines = top(report, "nd", now, terminal, shown);
    lines.extend(branches(report, now, terminal, shown));
    lines
}

/// The lines above the nodes: the rollout, its plan, and what it waits for. `short`: the short name of the kind.
pub fn top(
    report: &FleetReport,
    short: &str,
    now: DateTime<Utc>,
    terminal: Terminal,
    shown: Shown<'_>,
) -> Vec<Line> {
    let mut lines = vec![head(report, terminal, shown.namespaces)];
    let mut under = |line: Option<Line>| {
        lines.extend(
            line.iter().flat_map(|line| indented(&mapped(line, |text| shown.typed.text(text)), terminal)),
        );
    };
    under(plan(report));
    under(
        (!report.paused_by.is_empty())
            .then(|| Line::from(format!("paused by {}", report.paused_by).yellow())),
    );
    under((!report.waiting_for.is_empty()).then(|| waiting_line(report.verdict, report.waiting(now))));
    for remark in &report.remarks {
        under(Some(Line::from(remark.clone().yellow())));
    }
    let target = format!("{short}/{} -n {}", report.name, report.namespace);
    if matches!(report.verdict, Verdict::Refused | Verdict::Stalled) {
        under(Some(Line::from(format!("cause and suggested commands: windlass explain {target}"))));
    }
    for hook in &report.hooks {
        under(Some(hook_line(&target, hook)));
    }
    for unread in &report.unread {
        under(Some(Line::from(unread.clone().dim())));
    }
    lines
}

/// What it waits for, or what blocks it.
pub fn waiting_line(verdict: Verdict, sentence: String) -> Line {
    let ill = matches!(verdict, Verdict::Refused | Verdict::Stalled);
    Line::from(if ill { sentence.red() } else { Span::from(sentence) })
}

/// A line below an object's name, wrapped.
pub fn indented(line: &Line, terminal: Terminal) -> Vec<Line> {
    let mut indented = Line::from(" ".repeat(INDENT));
    indented.extend(line.spans.iter().cloned());
    terminal.folded(&indented, INDENT)
}

pub fn healthy(report: &FleetReport, namespaces: bool, width: usize) -> Line {
    let mut line = healthy_start(&name(report, namespaces), width, &report.strategy, &report.summary);
    line.push_span(format!("   {}", serving(report)));
    if !report.paused_by.is_empty() {
        line.push_span(format!("   paused by {}", report.paused_by).yellow());
    }
    line
}

/// The start of the line of a healthy object.
pub fn healthy_start(name: &str, width: usize, strategy: &str, summary: &str) -> Line {
    let mut line = Line::from("● ".green());
    line.push_span(format!("{name:<width$}").bold());
    line.push_span(format!("   {strategy:<9}").dim());
    line.push_span(format!("   {summary:<8}"));
    line
}

/// A fleet's name, with the namespace if several are shown.
pub fn name(report: &FleetReport, namespaces: bool) -> String {
    qualified(&report.namespace, &report.name, namespaces)
}

/// A name, with the namespace if several are shown.
pub fn qualified(namespace: &str, name: &str, namespaces: bool) -> String {
    if namespaces { format!("{namespace}/{name}") } else { name.to_owned() }
}

fn serving(report: &FleetReport) -> String {
    let groups = report.serving();
    if groups.is_empty() && report.replicas == 0 {
        return "0 replicas".to_owned();
    }
    let group = |(health, tag, count): &(Health, String, usize)| report.group_words(*health, tag, *count);
    groups.iter().map(group).collect::<Vec<_>>().join(", ")
}

/// The fleet in one line: a glyph per node, if they are few, and what it waits for.
pub fn line(report: &FleetReport) -> Line {
    let wave = report.rollout.as_ref().and_then(|rollout| rollout.wave);
    let wave = wave.map_or_else(String::new, |wave| format!("wave {}/{}", wave.number, wave.of));
    let mut line = Line::from(format!("{:<12} ", report.phase));
    let summary = report.rollout.as_ref().map_or("", |_| report.summary.as_str());
    line.push_span(format!("{summary:<14} {wave:<9}  "));
    if report.nodes.len() <= GLYPHS {
        for node in &report.nodes {
            let (glyph, style) = glyph(node.health);
            line.push_span(Span::styled(glyph, style));
            line.push_span(" ");
        }
    } else {
        line.push_span(serving(report));
    }
    line.push_span(format!("  {}", report.waiting_for));
    line
}

/// The most nodes that get a glyph each in one line.
const GLYPHS: usize = 100;

fn glyph(health: Health) -> (&'static str, Style) {
    let style = match health {
        Health::Failed | Health::Down => Style::new().red(),
        Health::Moving | Health::Settling => Style::new().yellow(),
        Health::Before => Style::new().cyan(),
        Health::Serving => Style::new().green(),
    };
    (health.glyph(), style)
}

fn head(report: &FleetReport, terminal: Terminal, namespaces: bool) -> Line {
    let mut line = head_start(name(report, namespaces), &report.strategy, report.verdict, &report.summary);
    if let Some(qualifier) = report.qualifier() {
        line.push_span(Span::styled(format!(" ({qualifier})"), style_of(report.verdict)));
    }
    let Some(rollout) = &report.rollout else { return line };
    let tail = tail(rollout);
    let count = |count: i32| usize::try_from(count).unwrap_or_default();
    add_bar(&mut line, (count(rollout.updated), count(rollout.total)), &tail, terminal);
    line.push_span(tail);
    line
}

/// The start of a tree's first line.
pub fn head_start(name: String, strategy: &str, verdict: Verdict, summary: &str) -> Line {
    let mut line = Line::from(name.bold());
    line.push_span(format!("   {strategy}").dim());
    line.push_span(Span::styled(format!("   {summary}"), style_of(verdict)));
    line
}

fn style_of(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Refused | Verdict::Stalled => Style::new().red(),
        Verdict::Progressing | Verdict::ScaledToZero => Style::new().yellow(),
        Verdict::UpToDate => Style::new().green(),
    }
}

/// Adds a progress bar, if there is room for it and for `tail`.
pub fn add_bar(line: &mut Line, (done, total): (usize, usize), tail: &str, terminal: Terminal) {
    let room = terminal.width.saturating_sub(line.width() + 3 + tail.chars().count());
    let Some(columns) = BAR.into_iter().find(|columns| *columns <= room) else { return };
    let total = total.max(1);
    let done = done.min(total) * columns / total;
    line.push_span(format!("   {}", "━".repeat(done)).green());
    line.push_span("─".repeat(columns - done).dim());
}

/// The text after the bar: the wave or the stage, and the time.
fn tail(rollout: &RolloutReport) -> String {
    let (place, elapsed) = (rollout.place(), rollout.elapsed());
    let left =
        rollout.about_left_seconds.map(|left| format!(", {} left", about(chrono::TimeDelta::seconds(left))));
    format!("  {place}   {elapsed}{}", left.unwrap_or_default())
}

/// A rollout's plan, such as `1.1 → 1.2 (plan 495ff12537: update-node-specs ✓, await-spec-update ◐, mark-ready ○)`.
fn plan(report: &FleetReport) -> Option<Line> {
    let rollout = report.rollout.as_ref()?;
    let mut line = Line::from(rollout.versions());
    if let Some(plan) = &report.plan {
        add_plan(&mut line, plan);
    }
    Some(line)
}

/// Adds a plan with the state of each task.
pub fn add_plan(line: &mut Line, plan: &PlanReport) {
    line.push_span(format!(" (plan {}: ", plan.id));
    for (index, task) in plan.tasks.iter().enumerate() {
        let hook = if task.hook.is_empty() { String::new() } else { format!(" {}", task.hook) };
        line.push_span(format!("{}{}{hook}", if index == 0 { "" } else { ", " }, task.type_));
        let style = match task.state {
            TaskState::Pending | TaskState::Skipped => Style::new().dim(),
            TaskState::Running => Style::new().yellow(),
            TaskState::Complete => Style::new().green(),
            TaskState::Failed => Style::new().red(),
        };
        line.push_span(Span::styled(format!("{NO_BREAK}{}", task_glyph(task.state)), style));
    }
    line.push_span(")");
}

/// A hook that needs attention, with the command to run.
pub fn hook_line(target: &str, hook: &HookStatus) -> Line {
    let of = if hook.node.is_empty() { String::new() } else { format!(" of {}", hook.node) };
    let name = format!("hook {}{of}", hook.hook);
    if hook.state == HookState::AwaitingApproval.as_ref() {
        let mut line = Line::from(format!("{name} waits for a person: ").yellow());
        line.push_span(format!("windlass approve {target} --task {}", hook.task_id));
        return line;
    }
    let mut line = Line::from(format!("{name} failed").red());
    line.push_span(format!(" (task {}): {}", hook.task_id, hook.message));
    line
}

/// A line below the fleet.
enum Branch<'a> {
    Node(&'a NodeReport),
    Said(Line),
}

fn branches(report: &FleetReport, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
    let words = |health, tag: &str, count| report.group_words(health, tag, count);
    drawn_below("", &report.tree(shown.all, shown.rows), report.began_from(), words, now, terminal, shown.all)
}

/// The branches of a tree, each after a prefix. `words`: a group of serving nodes.
#[allow(clippy::too_many_arguments, reason = "each is used once")]
pub fn drawn_below(
    prefix: &str,
    tree: &Tree<'_>,
    began_from: &str,
    words: impl Fn(Health, &str, usize) -> String,
    now: DateTime<Utc>,
    terminal: Terminal,
    all: bool,
) -> Vec<Line> {
    let mut branches: Vec<Branch<'_>> = tree.named.iter().copied().map(Branch::Node).collect();
    if tree.hidden > 0 {
        let what = if all { "" } else { " that are not available; list them with --all" };
        branches.push(Branch::Said(Line::from(format!("… and {} more{what}", tree.hidden).dim())));
    }
    for (health, tag, count) in &tree.groups {
        let mut line = Line::from(if *health == Health::Before { "●".cyan() } else { "●".green() });
        line.push_span(format!(" {}", words(*health, tag, *count)));
        branches.push(Branch::Said(line));
    }
    let columns = Columns::of(&branches, began_from);
    let last = branches.len().saturating_sub(1);
    branches
        .iter()
        .enumerate()
        .map(|(index, branch)| drawn(prefix, branch, index == last, &columns, now, terminal))
        .collect()
}

/// The widths of the columns, and the version that a node without a pod comes from.
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

fn drawn(
    prefix: &str,
    branch: &Branch<'_>,
    last: bool,
    columns: &Columns<'_>,
    now: DateTime<Utc>,
    terminal: Terminal,
) -> Line {
    let mut line = Line::from(format!("{prefix}{}", if last { "└─ " } else { "├─ " }).dim());
    let node = match branch {
        Branch::Said(message) => {
            line.extend(message.spans.iter().cloned());
            return line;
        }
        Branch::Node(node) => node,
    };
    let (glyph, style) = glyph(node.health);
    line.push_span(Span::styled(glyph, style));
    line.push_span(format!(" {:<name$}", node.name, name = columns.name));
    let versions = node.versions(columns.began_from);
    line.push_span(format!("   {versions:<width$}", width = columns.versions));
    let ill = matches!(node.health, Health::Failed | Health::Down);
    let since = node.since.filter(|_| ill).map(|since| format!("  since {}", clock_time(since, now)));
    let since = since.unwrap_or_default();
    let words = node.words();
    if !words.is_empty() {
        // The time matters more than the end of a long sentence.
        let room = terminal.width.saturating_sub(terminal.spelled(&line).width() + 3 + since.len());
        let words = Line::from(words);
        let words = if room > LEAST_WORDS {
            Terminal { width: room, ..terminal }.cut(&words).to_string().trim_end().to_owned()
        } else {
            words.to_string()
        };
        line.push_span(Span::styled(
            format!("   {words}{since}"),
            if ill { Style::new().red() } else { Style::new().dim() },
        ));
    }
    line
}

/// The least columns for a sentence; with fewer it is truncated at the line's end instead.
const LEAST_WORDS: usize = 12;
