//! `deletionPolicy: Retain` during a set's rollout: everything stays as it is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{
    CLAIM, FLEET, NODE, World, blue_green, condition, fleet, is_up_to_date, play, stage_is, text,
    with_sidecar,
};

fn by_name(w: &World, kind: (&str, &str), of: impl Fn(&Value) -> Value) -> BTreeMap<String, Value> {
    w.names(kind).into_iter().map(|name| (name.clone(), of(&w.get(kind, &name)))).collect()
}

/// UIDs of pods and claims, and the images of pods.
fn what_runs(w: &World) -> [BTreeMap<String, Value>; 3] {
    let uid = |o: &Value| o["metadata"]["uid"].clone();
    let image = |p: &Value| p["spec"]["containers"][0]["image"].clone();
    [by_name(w, ("v1", "Pod"), uid), by_name(w, ("v1", "Pod"), image), by_name(w, CLAIM, uid)]
}

fn retained(mut fleet: Value) -> Value {
    fleet["spec"]["deletionPolicy"] = json!("Retain");
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet
}

/// Deletes the fleet, and asserts that everything stays, pinned to what it runs.
async fn delete_and_hold(w: &World, nodes: usize) {
    let before = what_runs(w);
    assert_eq!(w.names(NODE).len(), nodes);
    w.delete(("windlass.dev/v1alpha1", "NodeDeployment"), "db").await;
    w.rest(600).await;
    assert!(w.status().is_null(), "the fleet is gone");
    assert_eq!(what_runs(w), before);
    for name in w.names(NODE) {
        let node = w.get(NODE, &name);
        assert!(node["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{node:#}");
        assert!(node["metadata"]["annotations"]["windlass.dev/owner-uid"].is_string(), "{node:#}");
        assert_eq!(node["spec"]["grantedHash"], node["status"]["podTemplateHash"], "{node:#}");
    }
    // A lost pod of either set comes back unchanged.
    for pod in before[0].keys() {
        w.delete(("v1", "Pod"), pod).await;
    }
    w.rest(120).await;
    let after = what_runs(w);
    assert_eq!((&after[1], &after[2]), (&before[1], &before[2]));
    w.cluster.clear_audit();
    w.rest(3600).await;
    let written: Vec<_> = w.cluster.audit().into_iter().filter(windlass_sim::AuditEntry::is_write).collect();
    assert!(written.is_empty(), "{written:?}");
}

#[test]
fn both_sets_survive_fleet_deletion_before_promotion() {
    for (image, stage) in [("db:2-unready", "AwaitingEntrants"), ("db:2", "AwaitingPromotion")] {
        play(|w| async move {
            w.serve(retained(blue_green(2, json!({"promotion": "Manual"})))).await;
            w.image(image).await;
            w.until("it waits", stage_is(stage)).await;
            w.rest(10).await;
            delete_and_hold(&w, 4).await;
        });
    }
}

#[test]
fn both_sets_survive_fleet_deletion_while_the_old_one_retires() {
    play(|w| async move {
        w.serve(retained(blue_green(2, json!({"retireDelaySeconds": 3600})))).await;
        w.image("db:2").await;
        let moved = w.until("traffic moved", stage_is("Retiring")).await;
        w.rest(10).await;
        delete_and_hold(&w, 4).await;
        assert_eq!(w.selected(), text(&moved, "activeSet"), "its Service lives on, too");
    });
}

#[test]
fn both_sets_survive_fleet_deletion_while_the_old_one_halts() {
    play(|w| async move {
        w.applications.reach(500);
        let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}});
        w.serve(retained(with_sidecar(fleet(2, strategy)))).await;
        w.image("db:2").await;
        w.until("they halt", |s| text(&s["rollout"], "message").contains("halt at height 1000")).await;
        w.rest(10).await;
        delete_and_hold(&w, 4).await;
    });
}

#[test]
fn leftover_service_is_reported_with_its_deleted_owner() {
    play(|w| async move {
        w.serve(retained(blue_green(1, json!({})))).await;
        let uid = w.get(FLEET, "db")["metadata"]["uid"].as_str().unwrap().to_owned();
        w.delete(FLEET, "db").await;
        w.until("the fleet is gone", Value::is_null).await;
        for (kind, name) in [(NODE, "db-0"), (CLAIM, "data-db-0-0")] {
            w.delete(kind, name).await;
        }
        w.rest(30).await;
        w.create(blue_green(1, json!({}))).await;
        let refused = w.until("it is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let all = refused["conditions"].as_array().unwrap();
        let said = text(all.iter().find(|c| c["type"] == "UpToDate").unwrap(), "message");
        let whose = format!("service: Service db belongs to the deleted NodeDeployment db (uid {uid})");
        assert!(said.starts_with(&whose) && said.contains("delete it"), "{said}");
        w.delete(("v1", "Service"), "db").await;
        w.until("it is made again", is_up_to_date).await;
        assert_eq!(w.selected(), "first");
    });
}
