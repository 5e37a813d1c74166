//! A fleet as a tree, and as one line: what was seen in, lines out. Pure; the screen decides about colours and
//! how much of a line there is room for.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::seen::{Seen, Standing, is_ready, problem, text};
use super::text::{Line, Style};

/// What the glyphs mean.
pub const LEGEND: [&str; 2] = [
    "○ serves what was before    ◐ on its way    ✗ cannot run",
    "◉ serves what is wanted     ● and has for minReadySeconds: its place is free",
];

/// The lines of the tree: the fleet, what it waits for, and its nodes, of which at most `rows` are shown, first
/// those that something happens to.
pub fn tree(seen: &Seen, now: DateTime<Utc>, rows: usize) -> Vec<Line> {
    if seen.fleet.is_null() {
        return Vec::new();
    }
    let mut lines = vec![head(seen), awaits(seen)];
    let shown = chosen(seen, now, rows);
    let hidden = seen.nodes.len() - shown.len();
    let widths = Widths::of(&shown);
    for (index, node) in shown.iter().enumerate() {
        let last = index + 1 == shown.len() && hidden == 0;
        lines.push(branch(node, last, &widths));
    }
    if hidden > 0 {
        lines.push(Line::of(Style::Dim, format!("└─ … and {hidden} more")));
    }
    lines
}

/// The fleet in one line: phase, summary, wave, a glyph for each node and what is waited for.
pub fn line(seen: &Seen, now: DateTime<Utc>) -> Line {
    let mut line = Line::default();
    if seen.fleet.is_null() {
        return line;
    }
    line.add(Style::Plain, format!("{:<12} {:<12} {:<8}  ", seen.phase(), summary(seen), wave(seen)));
    for ((_, name), node) in &seen.nodes {
        let (glyph, style) = glyph(seen.standing(name, node, now));
        line.add(style, glyph);
        line.add(Style::Plain, " ");
    }
    line.add(Style::Plain, format!("  {}", text(&seen.fleet["status"]["rollout"]["message"])));
    line
}

fn glyph(standing: Standing) -> (&'static str, Style) {
    match standing {
        Standing::Failed => ("✗", Style::Red),
        Standing::Moving => ("◐", Style::Yellow),
        Standing::Settling => ("◉", Style::Yellow),
        Standing::Before => ("○", Style::Cyan),
        Standing::Done => ("●", Style::Green),
    }
}

fn summary(seen: &Seen) -> &str {
    text(&seen.fleet["status"]["rollout"]["summary"])
}

fn wave(seen: &Seen) -> String {
    let most = &seen.fleet["spec"]["updateStrategy"]["inPlace"]["maxUnavailable"];
    let disrupted = seen.fleet["status"]["rollout"]["nodes"]["disrupted"].as_i64();
    disrupted.map_or_else(String::new, |disrupted| format!("wave {disrupted}/{most}"))
}

fn head(seen: &Seen) -> Line {
    let mut line = Line::of(Style::Bold, text(&seen.fleet["metadata"]["name"]));
    line.add(Style::Dim, format!("  {}", text(&seen.fleet["spec"]["updateStrategy"]["type"])));
    line.add(Style::Plain, format!("  {:<12} {:<12} {}", seen.phase(), summary(seen), wave(seen)));
    line
}

fn awaits(seen: &Seen) -> Line {
    let message = text(&seen.fleet["status"]["rollout"]["message"]);
    Line::of(Style::Dim, if message.is_empty() { "│".to_owned() } else { format!("│  {message}") })
}

/// A node, as it is shown.
struct Node {
    standing: Standing,
    name: String,
    image: String,
    words: String,
}

/// How wide the columns are.
struct Widths {
    name: usize,
    image: usize,
}

impl Widths {
    fn of(nodes: &[Node]) -> Self {
        let most = |width: fn(&Node) -> usize| nodes.iter().map(width).max().unwrap_or_default();
        Self { name: most(|n| n.name.chars().count()), image: most(|n| n.image.chars().count()) }
    }
}

/// The nodes to show, by ordinal.
fn chosen(seen: &Seen, now: DateTime<Utc>, rows: usize) -> Vec<Node> {
    let all = seen.nodes.iter().map(|((_, name), node)| (seen.standing(name, node, now), name, node));
    let mut all: Vec<_> = all.collect();
    if all.len() > rows {
        // One row is for the sentence about the others.
        let mut keep: Vec<usize> = (0..all.len()).collect();
        keep.sort_by_key(|index| all[*index].0);
        keep.truncate(rows.saturating_sub(1));
        keep.sort_unstable();
        all = keep.into_iter().map(|index| all[index]).collect();
    }
    all.into_iter()
        .map(|(standing, name, node)| Node {
            standing,
            name: name.clone(),
            image: image(seen, name, node),
            words: words(seen, standing, name, node, now),
        })
        .collect()
}

fn branch(node: &Node, last: bool, widths: &Widths) -> Line {
    let (glyph, style) = glyph(node.standing);
    let mut line = Line::of(Style::Dim, if last { "└─ " } else { "├─ " });
    line.add(style, glyph);
    line.add(Style::Plain, format!(" {:<name$}  ", node.name, name = widths.name));
    line.add(Style::Plain, format!("{:<image$}", node.image, image = widths.image));
    let style = if node.standing == Standing::Failed { Style::Red } else { Style::Dim };
    if !node.words.is_empty() {
        line.add(style, format!("  {}", node.words));
    }
    line
}

/// The tag that a node's pod runs, and the one that it moves to.
fn image(seen: &Seen, name: &str, node: &Value) -> String {
    let tag = |image: &Value| {
        let image = text(image);
        image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("", |(_, tag)| tag).to_owned()
    };
    let current = tag(&node["status"]["currentImage"]);
    let pod = seen.pod(name).map(|pod| tag(&pod["spec"]["containers"][0]["image"])).unwrap_or_default();
    match (current.is_empty(), pod.is_empty() || pod == current) {
        (false, true) => current,
        (false, false) => format!("{current} → {pod}"),
        (true, false) => format!("→ {pod}"),
        (true, true) => "no pod".to_owned(),
    }
}

/// What happens to a node, or what it waits for.
fn words(seen: &Seen, standing: Standing, name: &str, node: &Value, now: DateTime<Utc>) -> String {
    let plan = &node["status"]["plan"];
    let pod = seen.pod(name);
    match standing {
        Standing::Failed => problem(node),
        Standing::Settling => match pod.and_then(|pod| seen.free_in(pod, now)) {
            Some(seconds) => format!("Ready; its place in the wave is free in {seconds} s"),
            None => String::new(),
        },
        // A short wait is not written down: then the pod says what there is to say.
        Standing::Moving | Standing::Before if !task(plan).is_empty() => task(plan),
        Standing::Moving if pod.is_some_and(|p| p["metadata"]["deletionTimestamp"].is_string()) => {
            "its pod terminates".to_owned()
        }
        Standing::Moving if pod.is_some_and(|p| !is_ready(p)) => "its pod starts".to_owned(),
        Standing::Moving => "its pod is gone".to_owned(),
        Standing::Before | Standing::Done => String::new(),
    }
}

/// The task that an active plan is at and what it waits for; nothing where it does not say.
fn task(plan: &Value) -> String {
    if plan["state"] != "Active" {
        return String::new();
    }
    let tasks = plan["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let current = tasks.iter().position(|task| task["state"] == "Running" || task["state"] == "Pending");
    let Some(index) = current else { return String::new() };
    let (kind, message) = (text(&tasks[index]["type"]), text(&tasks[index]["message"]));
    if message.is_empty() {
        return String::new();
    }
    format!("{}/{} {kind}: {message}", index + 1, tasks.len())
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
