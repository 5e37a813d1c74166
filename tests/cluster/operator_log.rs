//! The log of `windlass operator` without a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The log of an operator without an API server, until its shutdown.
fn log_of_an_operator(name: &str, format: &str) -> Vec<String> {
    let kubeconfig = std::env::temp_dir().join(format!("windlass-log-{name}-{}", std::process::id()));
    let nowhere = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    });
    std::fs::write(&kubeconfig, nowhere.to_string()).unwrap();
    let mut operator = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0", "--log-format", format])
        .env("KUBECONFIG", &kubeconfig)
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(operator.stderr.take().unwrap()).lines();
    let mut lines = vec![log.next().unwrap().unwrap()];
    let stopped = Command::new("kill").args(["-TERM", &operator.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    lines.extend(log.map(Result::unwrap));
    assert!(operator.wait().unwrap().success(), "{lines:?}");
    std::fs::remove_file(kubeconfig).unwrap();
    lines
}

#[test]
fn text_log_in_a_file_has_no_colours() {
    let lines = log_of_an_operator("text", "text");
    assert!(lines[0].contains("windlass operator starts"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
}

#[test]
fn json_log_lines_have_time_level_and_message() {
    let lines = log_of_an_operator("json", "json");
    let read = |line: &String| serde_json::from_str::<serde_json::Value>(line);
    let lines: Vec<_> =
        lines.iter().map(|line| read(line).unwrap_or_else(|e| panic!("{line:?} is no JSON: {e}"))).collect();
    for line in &lines {
        let time = line["timestamp"].as_str().unwrap_or_default();
        assert!(chrono::DateTime::parse_from_rfc3339(time).is_ok(), "{line}");
        assert!(["ERROR", "WARN", "INFO"].contains(&line["level"].as_str().unwrap_or_default()), "{line}");
        assert!(line["target"].is_string() && line["fields"]["message"].is_string(), "{line}");
    }
    let said = |words: &str| lines.iter().find(|l| l["fields"]["message"].as_str().unwrap().contains(words));
    let started = said("windlass operator starts").expect("it says that it starts");
    assert_eq!(started["fields"]["version"], env!("CARGO_PKG_VERSION"), "{started}");
    assert_eq!(started["fields"]["bind"], "127.0.0.1:0", "{started}");
    assert!(said("stopping the windlass operator").is_some(), "{lines:?}");
}
