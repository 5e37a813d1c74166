//! Claims whose request is changed.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::{Answer, Ctx, JSON, MERGE, STRATEGIC};

cases![
    bound_claim_may_grow_where_its_class_allows_it,
    claim_of_another_class_may_not_grow,
    unbound_claim_may_not_change_its_request,
    growing_claim_may_shrink_down_to_what_it_has,
    the_status_of_a_growing_claim_is_a_part_of_its_own,
];

/// Makes a class of the namespace's own, whose claims nobody binds; the name of it.
async fn class(w: &Ctx, grows: bool) -> String {
    let name = w.ns.clone();
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "windlass.test/nobody", "allowVolumeExpansion": grows,
    });
    w.made("/apis/storage.k8s.io/v1/storageclasses", class).await;
    name
}

/// Makes the claim `data` of 1 GiB.
async fn claim(w: &Ctx, grows: bool) -> String {
    let class = class(w, grows).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    w.made(&w.at("persistentvolumeclaims"), claim).await;
    w.at("persistentvolumeclaims/data")
}

/// Makes the claim `data` of 1 GiB, bound in its status.
async fn bound(w: &Ctx, grows: bool) -> String {
    let path = claim(w, grows).await;
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let answer = w.patch(&format!("{path}/status"), MERGE, status).await;
    assert!(answer.code == 200, "{}", answer.body);
    path
}

fn request(size: &str) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": size}}}})
}

async fn ask(w: &Ctx, path: &str, size: &str) -> Answer {
    w.patch(path, MERGE, request(size)).await
}

async fn requested(w: &Ctx, path: &str) -> Value {
    w.get(path).await.body["spec"]["resources"]["requests"]["storage"].clone()
}

/// Notes the size after a tried change, too.
async fn tried(w: &Ctx, what: &str, path: &str, size: &str) {
    w.said(what, &ask(w, path, size).await);
    w.note("requested", requested(w, path).await);
}

async fn bound_claim_may_grow_where_its_class_allows_it(w: &Ctx) {
    let path = bound(w, true).await;
    tried(w, "equal", &path, "1024Mi").await;
    tried(w, "less", &path, "1023Mi").await;
    w.said("dry run", &ask(w, &format!("{path}?dryRun=All"), "2Gi").await);
    w.note("requested", requested(w, &path).await);
    tried(w, "more", &path, "2Gi").await;
    w.said("strategic", &w.patch(&path, STRATEGIC, request("3Gi")).await);
    let change = json!([{"op": "replace", "path": "/spec/resources/requests/storage", "value": "4Gi"}]);
    w.said("json", &w.patch(&path, JSON, change).await);
    let mut whole = w.get(&path).await.body;
    whole["spec"]["resources"]["requests"]["storage"] = json!("5Gi");
    w.said("put", &w.put(&path, whole).await);
    w.note("requested", requested(w, &path).await);
    let limits = json!({"spec": {"resources": {"limits": {"storage": "9Gi"}}}});
    w.coded("limits", &w.patch(&path, MERGE, limits).await);
    w.coded("mode", &w.patch(&path, MERGE, json!({"spec": {"accessModes": ["ReadOnlyMany"]}})).await);
}

async fn claim_of_another_class_may_not_grow(w: &Ctx) {
    let path = bound(w, false).await;
    tried(w, "more", &path, "2Gi").await;
    w.said("dry run", &ask(w, &format!("{path}?dryRun=All"), "2Gi").await);
    tried(w, "less", &path, "1Mi").await;
    let class = format!("/apis/storage.k8s.io/v1/storageclasses/{}", w.ns);
    w.patch(&class, MERGE, json!({"allowVolumeExpansion": true})).await;
    // The plugin has a cache of classes.
    w.settle().await;
    tried(w, "allowed since", &path, "2Gi").await;
    w.delete(&class, Value::Null).await;
    w.settle().await;
    tried(w, "class deleted", &path, "3Gi").await;
}

async fn unbound_claim_may_not_change_its_request(w: &Ctx) {
    let path = claim(w, true).await;
    w.coded("more", &ask(w, &path, "2Gi").await);
    w.coded("less", &ask(w, &path, "512Mi").await);
    w.note("requested", requested(w, &path).await);
}

async fn growing_claim_may_shrink_down_to_what_it_has(w: &Ctx) {
    let path = bound(w, true).await;
    tried(w, "more", &path, "4Gi").await;
    tried(w, "between", &path, "2Gi").await;
    tried(w, "just above", &path, "1025Mi").await;
    tried(w, "as before", &path, "1Gi").await;
    tried(w, "below", &path, "1").await;
}

async fn the_status_of_a_growing_claim_is_a_part_of_its_own(w: &Ctx) {
    let path = bound(w, true).await;
    ask(w, &path, "2Gi").await;
    let status = json!({
        "allocatedResources": {"storage": "2048Mi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{
            "type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "Waiting",
        }],
    });
    w.said("status", &w.patch(&format!("{path}/status"), MERGE, json!({"status": status})).await);
    w.note("shown", w.get(&path).await.body["status"].clone());
    w.said("ignored", &w.patch(&path, MERGE, json!({"status": {"capacity": {"storage": "2Gi"}}})).await);
    w.note("capacity", w.get(&path).await.body["status"]["capacity"].clone());
    let done = json!({
        "allocatedResourceStatuses": null, "conditions": null, "capacity": {"storage": "2Gi"},
    });
    w.said("done", &w.patch(&format!("{path}/status"), MERGE, json!({"status": done})).await);
    w.note("shown", w.get(&path).await.body["status"].clone());
}
