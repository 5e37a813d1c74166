//! `kubectl logs`, through the API server.

use std::time::Duration;

use serde_json::json;

use crate::process_kubelet::kit::{World, container, shell};

#[tokio::test]
#[ignore = "nightly"]
async fn kubectl_shows_what_containers_wrote() {
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

#[tokio::test]
#[ignore = "nightly"]
async fn a_log_is_followed_to_the_containers_end_and_the_one_before_is_kept() {
    let world = World::new("follow").await;
    let script = "test -f seen && { echo second; exec sleep 600; }; touch seen; echo begins; sleep 2; echo ends; exit 1";
    world.pod("p", json!({"containers": [shell("main", script)]})).await;
    world.until("p", "it runs", |pod| container(pod, "main")["state"]["running"].is_object()).await;
    // It ends by itself, with the container.
    let told = world.logs(&["p", "-f"]).await;
    assert_eq!(told, "begins\nends\n");
    world
        .until("p", "it runs again", |pod| {
            container(pod, "main")["restartCount"] == 1
                && container(pod, "main")["state"]["running"].is_object()
        })
        .await;
    assert_eq!(world.logs(&["p", "--previous"]).await, "begins\nends\n");
    for _ in 0..100 {
        if world.logs(&["p"]).await == "second\n" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{}", world.logs(&["p"]).await);
}
