//! The drawing of a fleet, line by line, at several terminal widths.

use serde_json::{Value, json};

use super::tree::{Shown, healthy, line, tree};
use crate::report::FleetReport;
use crate::report::Typed;
use crate::report::tests::{fleet, nodes, seen};
use crate::text::Terminal;

const NOW: &str = "2026-01-01T04:15:11Z";
const SHOWN: Shown<'_> = Shown { all: false, rows: 20, namespaces: false, typed: &Typed::PLAIN };

fn report(fleet: &Value, nodes: &[Value]) -> FleetReport {
    FleetReport::of(&seen(fleet, nodes), NOW.parse().unwrap())
}

fn terminal(width: usize) -> Terminal {
    Terminal { width, colours: false, unicode: true }
}

fn drawn(report: &FleetReport, terminal: Terminal, shown: Shown<'_>) -> String {
    let lines = tree(report, NOW.parse().unwrap(), terminal, shown);
    lines.iter().map(|line| terminal.painted(line) + "\n").collect()
}

#[test]
fn rollout_is_drawn_at_110_columns() {
    assert_eq!(
        drawn(&report(&fleet(), &nodes()), terminal(110), SHOWN),
        "\
db   InPlace   Updating 2/5   ━━━━━━━━────────────  wave 2 of 3   4m10s
     1.1 → 1.2 (plan 495ff12537: update-node-specs ✓, await-spec-update ◐, mark-ready ○)
     waiting for db-2: ImagePullBackOff for 3m02s (stalls in 6m58s)
├─ ✗ db-2   1.1 → 1.2   ImagePullBackOff: Back-off pulling image \"db:1.2\"  since 04:12:09
├─ ◐ db-1   1.1 → 1.2   replace-pod: the old pod is terminating, 12s of 30s
├─ ● 2 nodes available at 1.2
└─ ● 1 node available at 1.1
"
    );
}

#[test]
fn rollout_is_drawn_at_80_columns() {
    assert_eq!(
        drawn(&report(&fleet(), &nodes()), terminal(80), SHOWN),
        "\
db   InPlace   Updating 2/5   ━━━━━━━━────────────  wave 2 of 3   4m10s
     1.1 → 1.2 (plan 495ff12537: update-node-specs ✓, await-spec-update ◐,
     mark-ready ○)
     waiting for db-2: ImagePullBackOff for 3m02s (stalls in 6m58s)
├─ ✗ db-2   1.1 → 1.2   ImagePullBackOff: Back-off pulling imag…  since 04:12:09
├─ ◐ db-1   1.1 → 1.2   replace-pod: the old pod is terminating, 12s of 30s
├─ ● 2 nodes available at 1.2
└─ ● 1 node available at 1.1
"
    );
}

#[test]
fn rollout_is_drawn_at_80_columns_without_unicode() {
    let ascii = Terminal { unicode: false, ..terminal(80) };
    assert_eq!(
        drawn(&report(&fleet(), &nodes()), ascii, SHOWN),
        "\
db   InPlace   Updating 2/5   ========------------  wave 2 of 3   4m10s
     1.1 -> 1.2 (plan 495ff12537: update-node-specs +, await-spec-update ~,
     mark-ready o)
     waiting for db-2: ImagePullBackOff for 3m02s (stalls in 6m58s)
|- x db-2   1.1 -> 1.2   ImagePullBackOff: Back-off pulling i...  since 04:12:09
|- ~ db-1   1.1 -> 1.2   replace-pod: the old pod is terminating, 12s of 30s
|- * 2 nodes available at 1.2
`- * 1 node available at 1.1
"
    );
}

#[test]
fn rollout_is_drawn_in_colours() {
    let colours = Terminal { colours: true, ..terminal(110) };
    let drawn = drawn(&report(&fleet(), &nodes()), colours, SHOWN);
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(
        lines[0],
        "\x1b[1mdb\x1b[0m\x1b[2m   InPlace\x1b[0m\x1b[33m   Updating 2/5\x1b[0m\x1b[32m   ━━━━━━━━\x1b[0m\x1b[2m────────────\x1b[0m  wave 2 of 3   4m10s"
    );
    assert_eq!(
        lines[3],
        "\x1b[2m├─ \x1b[0m\x1b[31m✗\x1b[0m db-2   1.1 → 1.2\x1b[31m   ImagePullBackOff: Back-off pulling image \"db:1.2\"  since 04:12:09\x1b[0m"
    );
}

#[test]
fn all_flag_lists_every_node() {
    let drawn = drawn(&report(&fleet(), &nodes()), terminal(110), Shown { all: true, ..SHOWN });
    let nodes: Vec<&str> = drawn.lines().skip(3).collect();
    assert_eq!(nodes[0], "├─ ○ db-0   1.1");
    assert_eq!(nodes[4], "└─ ● db-4   1.2");
    assert_eq!(nodes.len(), 5);
}

#[test]
fn limited_rows_show_unhealthy_nodes_first() {
    let shown = Shown { all: true, rows: 3, ..SHOWN };
    let drawn = drawn(&report(&fleet(), &nodes()), terminal(110), shown);
    let lines: Vec<&str> = drawn.lines().skip(3).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("├─ ◐ db-1") && lines[1].starts_with("├─ ✗ db-2"), "{drawn}");
    assert_eq!(lines[2], "└─ … and 3 more");
}

#[test]
fn progress_bar_is_dropped_on_narrow_terminals() {
    let first =
        |width| drawn(&report(&fleet(), &nodes()), terminal(width), SHOWN).lines().next().unwrap().to_owned();
    assert_eq!(first(62), "db   InPlace   Updating 2/5   ━━━━──────  wave 2 of 3   4m10s");
    assert_eq!(first(56), "db   InPlace   Updating 2/5  wave 2 of 3   4m10s");
}

#[test]
fn steady_fleet_is_one_line() {
    let steady = |name: &str| {
        let mut fleet = fleet();
        fleet["metadata"]["name"] = json!(name);
        fleet["status"] = json!({"phase": "Ready", "observedGeneration": 3});
        let mut nodes = nodes();
        nodes.drain(..3);
        report(&fleet, &nodes)
    };
    let one = steady("db");
    let paused = FleetReport { paused_by: "alice: vacuum first".into(), ..steady("db") };
    assert!(
        terminal(90)
            .painted(&healthy(&paused, false, 2))
            .ends_with("available at 1.2   paused by alice: vacuum first")
    );
    assert_eq!(drawn(&one, terminal(80), SHOWN), "db   InPlace   Ready\n└─ ● 2 nodes available at 1.2\n");
    assert_eq!(
        terminal(80).painted(&healthy(&one, false, 5)),
        "● db      InPlace     Ready      2 nodes available at 1.2"
    );
    assert_eq!(
        terminal(80).painted(&healthy(&one, true, 8)),
        "● prod/db    InPlace     Ready      2 nodes available at 1.2"
    );
}

#[test]
fn compact_line_shows_a_glyph_per_node() {
    assert_eq!(
        line(&report(&fleet(), &nodes())).to_string(),
        "Upgrading    Updating 2/5   wave 2/3   ○ ◐ ✗ ● ●   waiting for db-2: ImagePullBackOff"
    );
}

#[test]
fn ten_thousand_nodes_are_drawn_in_one_screen_and_in_time() {
    let mut fleet = fleet();
    fleet["spec"]["replicas"] = json!(10_000);
    let well = nodes().pop().unwrap();
    let all: Vec<Value> = (0..10_000)
        .map(|ordinal| {
            let mut node = if ordinal % 10 == 0 { nodes()[2].clone() } else { well.clone() };
            node["metadata"]["name"] = json!(format!("db-{ordinal}"));
            node
        })
        .collect();
    let seen = seen(&fleet, &all);
    let began = windlass_clock::on_the_wall();
    let report = FleetReport::of(&seen, NOW.parse().unwrap());
    let drawn = drawn(&report, terminal(110), SHOWN);
    let took = began.elapsed();
    assert!(drawn.lines().count() <= 24, "{drawn}");
    assert!(
        drawn.contains("… and 982 more that are not available")
            && drawn.contains("● 9000 nodes available at 1.2"),
        "{drawn}"
    );
    println!("10,000 nodes drawn in {took:?}");
    // Unoptimized, next to other tests; docs/dev/cost.md has the optimised number.
    let most = if cfg!(debug_assertions) { 5_000 } else { 200 };
    assert!(took < std::time::Duration::from_millis(most), "{took:?}");
}

#[test]
fn hooks_needing_attention_are_listed_with_commands() {
    let mut fleet = fleet();
    fleet["status"]["hooks"] = json!([
        {"hook": "smoke", "node": "db-2", "taskID": "4c42db06ec-2", "state": "Failed", "message": "no success within 6 s"},
        {"hook": "ask", "taskID": "495ff12537-1", "state": "AwaitingApproval"},
    ]);
    let drawn = drawn(&report(&fleet, &nodes()), terminal(110), SHOWN);
    let hooks: Vec<&str> = drawn.lines().filter(|line| line.contains("hook ")).map(str::trim).collect();
    assert_eq!(
        hooks,
        [
            "hook smoke of db-2 failed (task 4c42db06ec-2): no success within 6 s",
            "hook ask waits for a person: windlass approve nd/db -n prod --task 495ff12537-1",
        ]
    );
}
