//! What `windlass operator` writes of itself where no terminal is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_log_in_text_that_goes_into_a_file_has_no_colours() {
    let kubeconfig = std::env::temp_dir().join(format!("windlass-log-test-{}", std::process::id()));
    let nowhere = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    });
    std::fs::write(&kubeconfig, nowhere.to_string()).unwrap();
    let mut operator = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0", "--log-format", "text"])
        .env("KUBECONFIG", &kubeconfig)
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(operator.stderr.take().unwrap()).read_line(&mut line).unwrap();
    operator.kill().unwrap();
    operator.wait().unwrap();
    std::fs::remove_file(kubeconfig).unwrap();
    assert!(line.contains("windlass operator starts"), "{line}");
    assert!(!line.contains('\x1b'), "{line:?}");
}
