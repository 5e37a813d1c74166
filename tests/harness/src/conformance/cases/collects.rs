//! The garbage collector.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::{Ctx, MERGE};

cases![
    children_are_deleted_in_the_background,
    an_orphan_loses_its_reference_and_stays,
    foreground_deletes_the_owner_last,
    foreground_deletes_children_while_a_finalizer_holds_owner,
    foreground_owner_does_not_wait_for_a_non_blocking_child,
    an_object_with_two_owners_stays_for_the_second,
    an_object_whose_owner_never_was_is_collected,
    a_reference_of_a_wrong_uid_does_not_save,
    grandchildren_are_deleted_too,
    children_of_a_custom_object_are_deleted_with_it,
    a_claim_with_a_plain_reference_goes_with_its_owner,
];

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }]}})
}

async fn make(w: &Ctx, body: Value) -> Value {
    w.made(&w.at("configmaps"), body).await
}

async fn children_are_deleted_in_the_background(w: &Ctx) {
    let owner = make(w, map("owner")).await;
    make(w, owned("child", &owner, true)).await;
    w.said("delete", &w.delete(&w.at("configmaps/owner"), json!({"propagationPolicy": "Background"})).await);
    w.coded("owner at once", &w.get(&w.at("configmaps/owner")).await);
    w.until_gone(&w.at("configmaps/child")).await;
}

async fn an_orphan_loses_its_reference_and_stays(w: &Ctx) {
    let owner = make(w, map("owner")).await;
    make(w, owned("child", &owner, true)).await;
    let answer = w.delete(&w.at("configmaps/owner"), json!({"propagationPolicy": "Orphan"})).await;
    w.note("delete", json!([answer.code, answer.body["metadata"]["finalizers"]]));
    w.until_gone(&w.at("configmaps/owner")).await;
    w.settle().await;
    let child = w.get(&w.at("configmaps/child")).await;
    w.note("child", json!([child.code, child.body["metadata"]["ownerReferences"]]));
}

async fn foreground_deletes_the_owner_last(w: &Ctx) {
    let owner = make(w, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    make(w, child).await;
    let answer = w.delete(&w.at("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await;
    w.note("delete", json!([answer.code, answer.body["metadata"]["finalizers"]]));
    w.until_is(&w.at("configmaps/child"), |c| c["metadata"]["deletionTimestamp"].is_string()).await;
    w.settle().await;
    w.coded("owner while the child lives", &w.get(&w.at("configmaps/owner")).await);
    w.patch(&w.at("configmaps/child"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_gone(&w.at("configmaps/owner")).await;
}

async fn foreground_deletes_children_while_a_finalizer_holds_owner(w: &Ctx) {
    let mut body = map("owner");
    body["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    let owner = make(w, body).await;
    make(w, owned("blocks", &owner, true)).await;
    make(w, owned("plain", &owner, false)).await;
    w.delete(&w.at("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await;
    w.until_gone(&w.at("configmaps/blocks")).await;
    w.until_gone(&w.at("configmaps/plain")).await;
    let left = w
        .until_is(&w.at("configmaps/owner"), |o| {
            o["metadata"]["finalizers"].as_array().is_some_and(|f| f.len() == 1)
        })
        .await;
    w.note("finalizers", left["metadata"]["finalizers"].clone());
    w.patch(&w.at("configmaps/owner"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_gone(&w.at("configmaps/owner")).await;
}

async fn foreground_owner_does_not_wait_for_a_non_blocking_child(w: &Ctx) {
    let owner = make(w, map("owner")).await;
    let mut child = owned("child", &owner, false);
    child["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    make(w, child).await;
    w.delete(&w.at("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await;
    w.until_gone(&w.at("configmaps/owner")).await;
    w.until_is(&w.at("configmaps/child"), |c| c["metadata"]["deletionTimestamp"].is_string()).await;
    w.patch(&w.at("configmaps/child"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_gone(&w.at("configmaps/child")).await;
}

async fn an_object_with_two_owners_stays_for_the_second(w: &Ctx) {
    let one = make(w, map("one")).await;
    let two = make(w, map("two")).await;
    let mut child = owned("child", &one, false);
    let second = owned("child", &two, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    make(w, child).await;
    w.delete(&w.at("configmaps/one"), Value::Null).await;
    let left = w
        .until_is(&w.at("configmaps/child"), |c| {
            c["metadata"]["ownerReferences"].as_array().is_some_and(|r| r.len() == 1)
        })
        .await;
    w.note("left", left["metadata"]["ownerReferences"][0]["name"].clone());
    w.delete(&w.at("configmaps/two"), Value::Null).await;
    w.until_gone(&w.at("configmaps/child")).await;
}

async fn an_object_whose_owner_never_was_is_collected(w: &Ctx) {
    let ghost = json!({"metadata": {"name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}});
    make(w, owned("child", &ghost, false)).await;
    w.until_gone(&w.at("configmaps/child")).await;
    w.note("gone", true);
}

async fn a_reference_of_a_wrong_uid_does_not_save(w: &Ctx) {
    let mut owner = make(w, map("owner")).await;
    owner["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    make(w, owned("child", &owner, false)).await;
    w.until_gone(&w.at("configmaps/child")).await;
    w.coded("owner", &w.get(&w.at("configmaps/owner")).await);
}

async fn grandchildren_are_deleted_too(w: &Ctx) {
    let a = make(w, map("a")).await;
    let b = make(w, owned("b", &a, true)).await;
    make(w, owned("c", &b, true)).await;
    w.delete(&w.at("configmaps/a"), Value::Null).await;
    w.until_gone(&w.at("configmaps/b")).await;
    w.until_gone(&w.at("configmaps/c")).await;
    let a = make(w, map("a")).await;
    let b = make(w, owned("b", &a, true)).await;
    make(w, owned("c", &b, true)).await;
    w.delete(&w.at("configmaps/a"), json!({"propagationPolicy": "Foreground"})).await;
    w.until_gone(&w.at("configmaps/a")).await;
    let codes = [w.get(&w.at("configmaps/b")).await.code, w.get(&w.at("configmaps/c")).await.code];
    w.note("when the owner is gone", json!(codes));
}

/// Uses a kind from before the controllers' start: they learn of later ones after a while.
async fn children_of_a_custom_object_are_deleted_with_it(w: &Ctx) {
    let node = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "metadata": {"name": "n"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "web:1"}]}}},
    });
    let node = w.made(&w.at("wl:statefulnodes"), node).await;
    let child = json!({"metadata": {"name": "child", "ownerReferences": [{
        "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "name": "n", "uid": node["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}]}});
    make(w, child).await;
    w.delete(&w.at("wl:statefulnodes/n"), Value::Null).await;
    w.until_gone(&w.at("configmaps/child")).await;
    w.note("gone", true);
}

async fn a_claim_with_a_plain_reference_goes_with_its_owner(w: &Ctx) {
    let owner = make(w, map("owner")).await;
    let mut claim = owned("data", &owner, false);
    claim["spec"] = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let made = w.made(&w.at("persistentvolumeclaims"), claim).await;
    w.note("finalizers", made["metadata"]["finalizers"].clone());
    w.note("spec", made["spec"].clone());
    w.delete(&w.at("configmaps/owner"), Value::Null).await;
    w.until_gone(&w.at("persistentvolumeclaims/data")).await;
}
