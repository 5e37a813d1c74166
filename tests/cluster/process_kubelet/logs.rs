//! `kubectl logs`, through the API server.

use std::time::Duration;

use serde_json::json;

use crate::process_kubelet::kit::{World, shell};

#[tokio::test]
#[ignore = "nightly"]
async fn kubectl_logs_shows_container_output() {
    let world = World::new("logs").await;
    let script = "echo one; echo two >&2; echo three; exec sleep 600";
    let other = shell("other", "echo from the other; exec sleep 600");
    world.pod("p", json!({"containers": [shell("main", script), other]})).await;
    world.until_ready("p").await;
    let mut told = String::new();
    for _ in 0..100 {
        told = world.logs(&["p", "-c", "main"]).await;
        if told.lines().count() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "three", "two"]);
    assert_eq!(world.logs(&["p", "-c", "main", "--tail", "1"]).await.lines().count(), 1);
    assert_eq!(world.logs(&["p", "-c", "other"]).await, "from the other\n");
    let timed = world.logs(&["p", "-c", "other", "--timestamps"]).await;
    assert!(timed.starts_with("20") && timed.ends_with("Z from the other\n"), "{timed}");
    assert_eq!(world.logs(&["p", "-c", "other", "--since", "1h"]).await, "from the other\n");
}
