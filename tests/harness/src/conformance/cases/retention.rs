//! The claim retention of StatefulSets: who owns a claim, and with whom it goes.

use serde_json::{Value, json};

use super::cases;
use super::sets::{claims, made, observed, ready_pod, set};
use crate::conformance::suite::{Ctx, MERGE};

cases![
    the_owners_of_claims_follow_the_retention_of_their_set,
    claim_is_deleted_on_scale_in_if_the_set_requests_it,
    claim_with_another_owner_keeps_it_under_any_retention,
];

/// A set `web` with a claim, of which the pod is ready.
async fn with_claim(w: &Ctx) {
    made(w, "web", json!({"volumeClaimTemplates": claims()})).await;
    ready_pod(w, "web-0").await;
}

async fn retain(w: &Ctx, deleted: &str, scaled: &str) {
    let retention = json!({"whenDeleted": deleted, "whenScaled": scaled});
    let change = json!({"spec": {"persistentVolumeClaimRetentionPolicy": retention}});
    w.patch(&w.at("apps:statefulsets/web"), MERGE, change).await;
    observed(w, "web").await;
}

/// The owner references of the claim, once it has one of this kind, or none of the set's and the pod's.
async fn owners(w: &Ctx, kind: Option<&str>) -> Value {
    let is_of = |owner: &Value, kind: &str| owner["kind"] == kind;
    let path = w.at("persistentvolumeclaims/data-web-0");
    let claim = w.until_is(&path, |claim| {
        let mut owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        match kind {
            Some(kind) => owners.any(|o| is_of(o, kind)),
            None => !owners.any(|o| is_of(o, "StatefulSet") || is_of(o, "Pod")),
        }
    });
    claim.await["metadata"]["ownerReferences"].clone()
}

async fn the_owners_of_claims_follow_the_retention_of_their_set(w: &Ctx) {
    with_claim(w).await;
    w.note("retained", owners(w, None).await);
    retain(w, "Delete", "Delete").await;
    w.note("deleted", owners(w, Some("StatefulSet")).await);
    retain(w, "Retain", "Delete").await;
    w.note("deleted when scaled", owners(w, None).await);
    retain(w, "Delete", "Retain").await;
    w.note("deleted with the set", owners(w, Some("StatefulSet")).await);
    retain(w, "Retain", "Retain").await;
    w.note("retained again", owners(w, None).await);
}

async fn claim_is_deleted_on_scale_in_if_the_set_requests_it(w: &Ctx) {
    let mut body = set("web", json!({"volumeClaimTemplates": claims()}));
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5.into();
    // The pod is held for a while, so that its claim can be looked at.
    body["spec"]["template"]["metadata"]["finalizers"] = json!(["conformance.test/held"]);
    w.made(&w.at("apps:statefulsets"), body).await;
    let pod = ready_pod(w, "web-0").await;
    let claim = w.at("persistentvolumeclaims/data-web-0");
    retain(w, "Delete", "Delete").await;
    owners(w, Some("StatefulSet")).await;
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 0}})).await;
    let owners = owners(w, Some("Pod")).await;
    w.note("condemned", json!([owners[0]["uid"] == pod["metadata"]["uid"], owners]));
    w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["deletionTimestamp"].is_string()).await;
    w.note("there", w.get(&claim).await.body["metadata"]["deletionTimestamp"].clone());
    w.patch(&w.at("pods/web-0"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_gone(&w.at("pods/web-0")).await;
    w.until_gone(&claim).await;
    w.note("set", w.get(&w.at("apps:statefulsets/web")).await.code);
}

/// A reference to a new ConfigMap, with what it says beside the object.
async fn owner(w: &Ctx, mut reference: Value) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": reference["name"]}});
    let made = w.made(&w.at("configmaps"), map).await;
    reference["apiVersion"] = "v1".into();
    reference["kind"] = "ConfigMap".into();
    reference["uid"] = made["metadata"]["uid"].clone();
    reference
}

async fn claim_with_another_owner_keeps_it_under_any_retention(w: &Ctx) {
    let claim = w.at("persistentvolumeclaims/data-web-0");
    let owned_by = async |owner: Value| {
        w.patch(&claim, MERGE, json!({"metadata": {"ownerReferences": [owner]}})).await;
    };
    with_claim(w).await;
    owned_by(owner(w, json!({"name": "plain"})).await).await;
    retain(w, "Delete", "Retain").await;
    w.note("beside a plain owner", owners(w, Some("StatefulSet")).await);
    retain(w, "Retain", "Retain").await;
    w.note("the plain owner", owners(w, None).await);
    owned_by(owner(w, json!({"name": "controls", "controller": true})).await).await;
    retain(w, "Delete", "Retain").await;
    w.settle().await;
    w.note("beside a controller", w.get(&claim).await.body["metadata"]["ownerReferences"].clone());
}
