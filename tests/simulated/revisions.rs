//! A ControllerRevision that somebody deletes although nodes are still to run it.

use serde_json::{Value, json};

use super::sets::world::{NODE, World, condition, fleet, is_up_to_date, play, text};

const REVISION: (&str, &str) = ("apps/v1", "ControllerRevision");

async fn held_by_partition(w: &World, replicas: i32) -> Value {
    w.serve(fleet(replicas, json!({"type": "InPlace", "inPlace": {"partition": 2}}))).await;
    w.image("db:2").await;
    w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await
}

#[test]
fn the_current_revision_is_made_again_from_what_nodes_still_hold() {
    play(|w| async move {
        let held = held_by_partition(&w, 3).await;
        let current = text(&held, "currentRevision").to_owned();
        let before = w.get(REVISION, &current);
        w.delete(REVISION, &current).await;
        w.rest(10).await;
        let after = w.get(REVISION, &current);
        assert_eq!(after["data"], before["data"], "{after:#}");
        assert!(
            after["revision"].as_i64() < w.get(REVISION, text(&held, "updateRevision"))["revision"].as_i64()
        );
        // The node that held it may be gone by the time that it is missed.
        let uid = w.get(NODE, "db-0")["metadata"]["uid"].clone();
        w.kill_operator();
        w.delete(REVISION, &current).await;
        w.delete(NODE, "db-0").await;
        w.rest(5).await;
        w.start_operator();
        w.until("it is back", |_| {
            let node = w.get(NODE, "db-0");
            node["metadata"]["uid"] != uid && node["status"]["currentImage"] == "db:1"
        })
        .await;
        w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
        w.until("it is over", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn a_current_revision_that_nobody_knows_any_more_is_said_to_be_gone() {
    play(|w| async move {
        let held = held_by_partition(&w, 3).await;
        let current = text(&held, "currentRevision").to_owned();
        w.kill_operator();
        w.delete(REVISION, &current).await;
        for node in ["db-0", "db-1"] {
            w.delete(NODE, node).await;
        }
        w.rest(5).await;
        w.start_operator();
        let told = |s: &Value| {
            let list = s["conditions"].as_array().cloned().unwrap_or_default();
            let said = list.iter().find(|c| c["type"] == "UpToDate").cloned().unwrap_or_default();
            text(&said, "message").contains(&current)
        };
        w.until("that is said", told).await;
        w.rest(60).await;
        assert_eq!(w.names(NODE), ["db-2"], "nobody knows what they ran");
        w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
        let done = w.until("the target needs nothing of it", is_up_to_date).await;
        assert!(!told(&done), "{done:#}");
    });
}
