//! The picture of a fleet, line by line.

use serde_json::{Value, json};

use super::*;
use crate::cli::demo::seen::Sort;

const NOW: &str = "2026-01-01T00:00:10Z";

fn pod(node: &str, tag: &str, ready_since: Option<&str>) -> Value {
    let status = if ready_since.is_some() { "True" } else { "False" };
    json!({
        "metadata": {"name": format!("{node}-0"), "uid": format!("{node}-{tag}")},
        "spec": {"containers": [{"name": "db", "image": format!("registry.example/db:{tag}")}]},
        "status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": ready_since.unwrap_or(NOW)}]},
    })
}

fn node(tag: &str, phase: &str) -> Value {
    json!({"status": {"phase": phase, "currentImage": format!("registry.example/db:{tag}")}})
}

/// One node of each standing, in a rollout to 1.1.
fn seen() -> Seen {
    let mut seen = Seen::default();
    let fleet = json!({
        "metadata": {"name": "db"},
        "spec": {"minReadySeconds": 4, "template": {"spec": {"image": "registry.example/db:1.1"}},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": 3}}},
        "status": {"phase": "Upgrading", "rollout": {"summary": "Updating 2/6", "nodes": {"disrupted": 3},
            "message": "waiting for the wave: 3 of at most 3 nodes are disrupted, db-0 still to be granted"}},
    });
    seen.take(Sort::Fleet, "db", Some(fleet));
    let mut add = |name: &str, node: Value, pod: Option<Value>| {
        seen.take(Sort::Node, name, Some(node));
        if let Some(pod) = pod {
            seen.take(Sort::Pod, &format!("{name}-0"), Some(pod));
        }
    };
    add("db-0", node("1.0", "Running"), Some(pod("db-0", "1.0", Some("2026-01-01T00:00:00Z"))));
    let mut waiting = node("1.0", "Updating");
    waiting["status"]["plan"] = json!({"state": "Active", "tasks": [
        {"type": "apply-stateful-set", "state": "Complete"},
        {"type": "replace-pod", "state": "Running", "message": "waiting for the old pod to terminate"},
        {"type": "mark-ready", "state": "Pending"}]});
    add("db-1", waiting, None);
    let mut failed = node("", "Failed");
    failed["status"]["problem"] = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image"});
    add("db-2", failed, Some(pod("db-2", "1.1", None)));
    add("db-3", node("1.1", "Running"), Some(pod("db-3", "1.1", Some("2026-01-01T00:00:08Z"))));
    add("db-4", node("1.1", "Running"), Some(pod("db-4", "1.1", Some("2026-01-01T00:00:01Z"))));
    add("db-10", node("1.0", "Updating"), Some(pod("db-10", "1.1", None)));
    seen
}

fn drawn(seen: &Seen, rows: usize) -> String {
    let lines = tree(seen, NOW.parse().unwrap(), rows);
    lines.iter().map(|line| line.painted(80, false) + "\n").collect()
}

#[test]
fn a_tree_shows_what_each_node_runs_and_waits_for() {
    assert_eq!(
        drawn(&seen(), 10),
        "\
db  InPlace  Upgrading    Updating 2/6 wave 3/3
│  waiting for the wave: 3 of at most 3 nodes are disrupted, db-0 still to be g…
├─ ○ db-0   1.0
├─ ◐ db-1   1.0        2/3 replace-pod: waiting for the old pod to terminate
├─ ✗ db-2   → 1.1      ImagePullBackOff: Back-off pulling image
├─ ◉ db-3   1.1        Ready; its place in the wave is free in 2 s
├─ ● db-4   1.1
└─ ◐ db-10  1.0 → 1.1  its pod starts
"
    );
}

#[test]
fn a_tree_without_room_shows_those_that_something_happens_to() {
    assert_eq!(
        drawn(&seen(), 4),
        "\
db  InPlace  Upgrading    Updating 2/6 wave 3/3
│  waiting for the wave: 3 of at most 3 nodes are disrupted, db-0 still to be g…
├─ ◐ db-1   1.0        2/3 replace-pod: waiting for the old pod to terminate
├─ ✗ db-2   → 1.1      ImagePullBackOff: Back-off pulling image
├─ ◐ db-10  1.0 → 1.1  its pod starts
└─ … and 3 more
"
    );
}

#[test]
fn a_steady_fleet_waits_for_nothing() {
    let mut seen = Seen::default();
    let fleet = json!({"metadata": {"name": "db"}, "status": {"phase": "Ready"},
        "spec": {"template": {"spec": {"image": "registry.example/db:1.1"}}, "updateStrategy": {"type": "InPlace"}}});
    seen.take(Sort::Fleet, "db", Some(fleet));
    seen.take(Sort::Node, "db-0", Some(node("1.1", "Running")));
    seen.take(Sort::Pod, "db-0-0", Some(pod("db-0", "1.1", Some("2026-01-01T00:00:00Z"))));
    assert_eq!(drawn(&seen, 10), "db  InPlace  Ready\n│\n└─ ● db-0  1.1\n");
    assert_eq!(line(&seen, NOW.parse().unwrap()).plain(), "Ready                               ●");
    assert_eq!(drawn(&Seen::default(), 10), "", "nothing is drawn before there is a fleet");
}

#[test]
fn a_line_shows_a_glyph_for_each_node() {
    assert_eq!(
        line(&seen(), NOW.parse().unwrap()).plain(),
        "Upgrading    Updating 2/6 wave 3/3  ○ ◐ ✗ ◉ ● ◐   waiting for the wave: 3 of at most 3 nodes are disrupted, db-0 still to be granted"
    );
}
