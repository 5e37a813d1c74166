//! The name of a node's pod or claim belongs to another object: it is reported and not touched, and the other nodes
//! continue.

use serde_json::{Value, json};

use super::sets::world::{CLAIM, NODE, World, condition, fleet, is_up_to_date, play, text};

const FLEET: (&str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment");
const POD: (&str, &str) = ("v1", "Pod");

fn in_place(replicas: i32) -> Value {
    fleet(replicas, json!({"type": "InPlace"}))
}

fn said_of(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or_default();
    text(&found, "message").to_owned()
}

/// Asserts that node db-1 is refused because of an object, that the fleet reports it, and that the others run.
async fn is_refused(w: &World, object: &str) {
    let refused = |s: &Value| condition(s, "UpToDate") == "False/InvalidSpec" && s["readyReplicas"] == 2;
    let status = w.until("it is refused", refused).await;
    let sentence = said_of(&status, "UpToDate");
    assert!(sentence.contains(object) && sentence.contains("db-1"), "{sentence}");
    assert_eq!(condition(&status, "Stalled"), "True/InvalidSpec");
    let node = w.get(NODE, "db-1")["status"].clone();
    assert_eq!(condition(&node, "Stalled"), "True/InvalidSpec", "{node:#}");
    assert!(said_of(&node, "Stalled").contains(object), "{node:#}");
    w.rest(600).await;
    let all = w.cluster.snapshot();
    let told = all
        .iter()
        .filter(|o| o["kind"] == "Event" && o["reason"] == "InvalidSpec" && o["regarding"]["name"] == "db-1");
    let notes: Vec<&str> = told.map(|e| text(e, "note")).collect();
    assert!(notes.len() == 1 && notes[0].contains(object), "{notes:?}");
}

#[test]
fn a_foreign_pod_of_a_nodes_name_is_said_left_alone_and_given_way_to() {
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
fn a_foreign_claim_of_a_nodes_name_is_said_and_taken_only_when_a_person_says_so() {
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

#[test]
fn a_name_that_belongs_to_another_fleet_is_said_and_the_other_nodes_go_on() {
    play(|w| async move {
        // The Service of fleet db-1 has the same name as that of node db-1 of fleet db.
        let mut other = in_place(1);
        other["metadata"]["name"] = json!("db-1");
        w.create(other).await;
        w.rest(60).await;
        let before = w.get(("v1", "Service"), "db-1");
        assert_eq!(before["metadata"]["ownerReferences"][0]["kind"], "NodeDeployment", "{before:#}");
        w.create(in_place(3)).await;
        let refused = |s: &Value| condition(s, "UpToDate") == "False/InvalidSpec";
        let status = w.until("it is refused", refused).await;
        assert!(said_of(&status, "UpToDate").contains("Service db-1"), "{status:#}");
        w.rest(120).await;
        let node = w.get(NODE, "db-1")["status"].clone();
        assert_eq!(condition(&node, "Stalled"), "True/InvalidSpec", "{node:#}");
        for name in ["db-0", "db-2"] {
            assert_eq!(condition(&w.get(NODE, name)["status"], "Ready"), "True/NodeReady", "{name} goes on");
        }
        let after = w.get(("v1", "Service"), "db-1");
        assert_eq!(
            (&after["metadata"]["uid"], &after["spec"]),
            (&before["metadata"]["uid"], &before["spec"])
        );
        assert_eq!(
            condition(&w.get(FLEET, "db-1")["status"], "UpToDate"),
            "True/Applied",
            "nor is the other one touched"
        );
        // It continues once the name is free.
        let none = kube::api::Patch::Merge(json!({"spec": {"service": null}}));
        w.fleets().patch("db-1", &kube::api::PatchParams::default(), &none).await.unwrap();
        w.until("it has its Service", is_up_to_date).await;
        let own = w.get(("v1", "Service"), "db-1");
        assert_eq!(own["metadata"]["ownerReferences"][0]["kind"], "StatefulNode", "{own:#}");
    });
}

#[test]
fn claims_that_an_earlier_fleet_of_the_name_left_are_taken_again() {
    play(|w| async move {
        w.serve(in_place(2)).await;
        let before = w.get(CLAIM, "data-db-1-0")["metadata"]["uid"].clone();
        w.delete(("windlass.dev/v1alpha1", "NodeDeployment"), "db").await;
        w.rest(60).await;
        w.serve(in_place(2)).await;
        assert_eq!(w.get(CLAIM, "data-db-1-0")["metadata"]["uid"], before);
    });
}

#[test]
fn a_node_that_ran_on_a_claim_gets_its_lost_stateful_set_back_although_the_claim_lost_its_label() {
    play(|w| async move {
        w.serve(in_place(2)).await;
        let stripped = json!({"metadata": {"labels": {"windlass.dev/node": null}}});
        let patch = kube::api::Patch::Merge(stripped);
        w.api(CLAIM).patch("data-db-1-0", &kube::api::PatchParams::default(), &patch).await.unwrap();
        let before = w.get(POD, "db-1-0")["metadata"]["uid"].clone();
        w.delete(("apps/v1", "StatefulSet"), "db-1").await;
        let is_back = |s: &Value| {
            let uid = w.get(POD, "db-1-0")["metadata"]["uid"].clone();
            is_up_to_date(s) && s["readyReplicas"] == 2 && uid.is_string() && uid != before
        };
        w.until("it is back", is_back).await;
    });
}
