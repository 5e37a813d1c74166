//! The alerts, tested with Prometheus' own tool.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::install::helm::path;
use windlass_harness::debian;

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Checks that Prometheus accepts the metrics, and that their names follow its rules.
pub fn check_metrics(promtool: &Path, page: &str) {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    // promtool reads the older text format: OpenMetrics has the help of a counter under a name without the suffix.
    let has_help = |line: &str| {
        let family = line.strip_suffix("_total no help text");
        family.is_some_and(|family| page.contains(&format!("# HELP {family} ")))
    };
    let said = said(&output);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty() && !has_help(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{page}");
}

#[test]
fn alerts_fire_only_when_they_should() {
    let Some(promtool) = debian::program("prometheus", "usr/bin/promtool") else { return };
    for words in [["check", "rules"], ["test", "rules"]] {
        let file = if words[0] == "check" { "alerts.yaml" } else { "alerts_test.yaml" };
        let output =
            Command::new(&promtool).args(words).arg(file).current_dir(path("deploy/monitoring")).output();
        let output = output.expect("promtool runs");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
}

#[test]
fn each_alert_has_a_runbook_section_and_a_test() {
    let read = |file: &str| std::fs::read_to_string(path(file)).unwrap();
    let (alerts, page, tests) = (
        read("deploy/monitoring/alerts.yaml"),
        read("docs/reference/alerts.md"),
        read("deploy/monitoring/alerts_test.yaml"),
    );
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names.len(), 18);
    let urls: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    assert_eq!(urls.len(), names.len());
    for (name, url) in names.iter().zip(urls) {
        assert!(url.ends_with(&format!("docs/reference/alerts.md#{}", name.to_lowercase())), "{url}");
        assert!(
            page.lines().any(|line| line == format!("## {name}")),
            "docs/reference/alerts.md has no section {name}"
        );
        assert!(tests.contains(&format!("alertname: {name}\n")), "alerts_test.yaml has no case of {name}");
    }
}
