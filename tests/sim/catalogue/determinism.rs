//! One seed, one trace: twice in this process, and in another one. Replays depend on it.

use std::process::Command;

use crate::catalogue::run;

/// Runs with different dependencies: the queue, the watches, clocks, sidecars, two operators at once, the platform.
const LINES: [&str; 12] = [
    "in-place/image/3 seed=1",
    "in-place/image/3 F1-after 5 seed=1",
    "in-place/image/7 F4-gone 20 seed=2",
    "in-place/template/7 F4-cut 12 seed=1",
    "in-place/create/3 F6-503-minute 4 seed=1",
    "wave-of-2/image/5 F8-late 9 seed=3",
    "wave-of-2/image/5 F3-lag-all 6 seed=3",
    "sidecar/image/3 F9-back 8 seed=1",
    "in-place/repair/3 F11-delete-child 3 F5-thrice 7 seed=4",
    "hard-fork/image/3 F7-third 20 F1-after 22 seed=1",
    "in-place/image/3 F16-templates-mirrored 9 F16-silent 14 seed=2",
    "in-place/labels/5 F16-revisions-before 0 F16-drain 2 seed=1",
];

fn trace(line: &str) -> String {
    run::play(&line.parse().unwrap(), None, true).trace.join("\n")
}

fn all() -> String {
    LINES.map(|line| format!("{line}\n{}\n", trace(line))).concat()
}

#[test]
fn same_seed_gives_identical_traces_across_processes() {
    if let Ok(path) = std::env::var("WINDLASS_TRACE_TO") {
        std::fs::write(path, all()).unwrap();
        return;
    }
    let path = std::env::temp_dir().join(format!("windlass-catalogue-trace-{}", std::process::id()));
    let name = "catalogue::determinism::same_seed_gives_identical_traces_across_processes";
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("WINDLASS_TRACE_TO", &path)
        .output()
        .unwrap();
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    let there = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for here in [all(), all()] {
        let differs = here.lines().zip(there.lines()).find(|(left, right)| left != right);
        assert_eq!(differs, None);
        assert_eq!(here.len(), there.len());
    }
}

#[test]
fn different_seed_or_point_gives_a_different_trace() {
    let first = trace(LINES[1]);
    assert!(first.lines().count() > 100, "{first}");
    assert_ne!(first, trace("in-place/image/3 F1-after 5 seed=2"));
    assert_ne!(first, trace("in-place/image/3 F1-after 6 seed=1"));
}
