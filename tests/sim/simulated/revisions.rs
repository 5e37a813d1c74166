//! Somebody deletes a ControllerRevision that nodes still need.

use serde_json::{Value, json};

use super::sets::world::{NODE, REVISION, World, condition, fleet, is_up_to_date, play, text};

async fn held_by_partition(w: &World, replicas: i32) -> Value {
    w.serve(fleet(replicas, json!({"type": "InPlace", "inPlace": {"partition": 2}}))).await;
    w.image("db:2").await;
    w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await
}

#[test]
fn current_revision_is_recreated_from_the_nodes() {
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
        // The node that had it may be gone by the time it is missed.
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
fn recreated_revision_keeps_its_revision_number() {
    play(|w| async move {
        let held = held_by_partition(&w, 3).await;
        let (current, wanted) = (text(&held, "currentRevision"), text(&held, "updateRevision"));
        let number = |name: &str| w.get(REVISION, name)["revision"].as_i64();
        assert_eq!((number(current), number(wanted)), (Some(1), Some(2)));
        for deleted in [&[wanted][..], &[current], &[current, wanted]] {
            w.kill_operator();
            for name in deleted {
                w.delete(REVISION, name).await;
            }
            w.start_operator();
            w.rest(10).await;
            assert_eq!((number(current), number(wanted)), (Some(1), Some(2)), "{deleted:?}");
        }
        // In a rollback the last completed revision is the newer one.
        w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
        w.until("it is over", is_up_to_date).await;
        w.change(json!({"updateStrategy": {"inPlace": {"partition": 2}}})).await;
        w.image("db:1").await;
        let back = w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await;
        assert_eq!((text(&back, "updateRevision"), text(&back, "currentRevision")), (current, wanted));
        w.delete(REVISION, wanted).await;
        w.rest(10).await;
        assert_eq!((number(current), number(wanted)), (Some(1), Some(2)));
    });
}
