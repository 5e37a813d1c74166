//! The name of a node's pod or claim belongs to another object: it is reported and not touched, and the other nodes
//! continue.

use serde_json::{Value, json};

use super::sets::world::{CLAIM, NODE, POD, World, condition, fleet, is_up_to_date, message, play, text};

fn in_place(replicas: i32) -> Value {
    fleet(replicas, json!({"type": "InPlace"}))
}

/// Asserts that node db-1 is refused because of an object, that the fleet reports it, and that the others run.
async fn is_refused(w: &World, object: &str) {
    let refused = |s: &Value| condition(s, "UpToDate") == "False/InvalidSpec" && s["readyReplicas"] == 2;
    let status = w.until("it is refused", refused).await;
    let sentence = message(&status, "UpToDate");
    assert!(sentence.contains(object) && sentence.contains("db-1"), "{sentence}");
    assert_eq!(condition(&status, "Stalled"), "True/InvalidSpec");
    let node = w.get(NODE, "db-1")["status"].clone();
    assert_eq!(condition(&node, "Stalled"), "True/InvalidSpec", "{node:#}");
    assert!(message(&node, "Stalled").contains(object), "{node:#}");
    w.rest(600).await;
    let all = w.cluster.snapshot();
    let told = all
        .iter()
        .filter(|o| o["kind"] == "Event" && o["reason"] == "InvalidSpec" && o["regarding"]["name"] == "db-1");
    let notes: Vec<&str> = told.map(|e| text(e, "note")).collect();
    assert!(notes.len() == 1 && notes[0].contains(object), "{notes:?}");
}

#[test]
fn foreign_pod_with_a_nodes_name_is_reported_and_kept() {
    for labels in [json!({}), json!({"windlass.dev/node": "other"})] {
        play(|w| async move {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-1-0", "labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "x", "image": "other:1"}]}});
            w.create(pod).await;
            w.rest(5).await;
            let before = w.get(POD, "db-1-0")["metadata"]["uid"].clone();
            w.create(in_place(3)).await;
            is_refused(&w, "Pod db-1-0").await;
            assert_eq!(w.get(POD, "db-1-0")["metadata"]["uid"], before, "it is not touched");
            w.delete(POD, "db-1-0").await;
            w.until("once it is gone the fleet goes on by itself", is_up_to_date).await;
        });
    }
}

#[test]
fn foreign_claim_is_adopted_only_after_it_is_labelled() {
    play(|w| async move {
        w.create(
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-1-0"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        )
        .await;
        let before = w.get(CLAIM, "data-db-1-0")["metadata"].clone();
        w.create(in_place(3)).await;
        is_refused(&w, "PersistentVolumeClaim data-db-1-0").await;
        assert_eq!(w.get(CLAIM, "data-db-1-0")["metadata"]["uid"], before["uid"]);
        assert_eq!(w.get(CLAIM, "data-db-1-0")["metadata"]["labels"], before["labels"]);
        assert!(w.get(("apps/v1", "StatefulSet"), "db-1").is_null(), "nothing runs on it");
        let label = json!({"metadata": {"labels": {"windlass.dev/node": "db-1"}}});
        let patch = kube::api::Patch::Merge(label);
        w.api(CLAIM).patch("data-db-1-0", &kube::api::PatchParams::default(), &patch).await.unwrap();
        w.until("its node takes it", is_up_to_date).await;
        assert_eq!(w.get(CLAIM, "data-db-1-0")["metadata"]["uid"], before["uid"]);
    });
}
