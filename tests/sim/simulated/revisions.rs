//! Somebody deletes a ControllerRevision that nodes still need.

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
fn a_revision_that_is_made_again_takes_its_place_among_the_others() {
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

#[test]
fn a_revision_that_is_not_the_fleets_any_more_is_said_and_asked_for_seldom() {
    for keeps_label in [true, false] {
        play(|w| async move {
            w.serve(fleet(2, json!({"type": "InPlace"}))).await;
            let name = text(&w.status(), "currentRevision").to_owned();
            let mut stripped = json!({"metadata": {"ownerReferences": null}});
            if !keeps_label {
                stripped["metadata"]["labels"] = json!({"windlass.dev/deployment": null});
            }
            let patch = kube::api::Patch::Merge(stripped);
            w.api(REVISION).patch(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
            w.delete(NODE, "db-1").await;
            let told = |s: &Value| {
                let list = s["conditions"].as_array().cloned().unwrap_or_default();
                let said = list.iter().find(|c| c["type"] == "UpToDate").cloned().unwrap_or_default();
                text(&said, "message").contains(&format!("ControllerRevision {name} exists"))
            };
            w.until("it is said", told).await;
            w.cluster.clear_audit();
            w.rest(300).await;
            let asked =
                w.cluster.audit().into_iter().filter(|e| e.resource.starts_with("controllerrevisions"));
            let asked = asked.filter(|e| e.user_agent == "windlass" && e.verb != "watch" && e.verb != "list");
            let asked: Vec<_> = asked.map(|e| e.verb).collect();
            assert!(asked.len() <= 30, "{asked:?}");
            assert!(told(&w.status()));
            w.delete(REVISION, &name).await;
            let done = w.until("it is made again", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
            assert_eq!(text(&done, "currentRevision"), name);
            assert_eq!(w.images().iter().filter(|i| i.ends_with("db:1")).count(), 2);
        });
    }
}
