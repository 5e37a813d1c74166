//! The platform's changes of others' objects: policies, evictions, re-serialized revisions.

use serde_json::{Value, json};
use windlass_sim::{Mutation, Target, proxy};

use super::cases;
use super::sets::{image, made, observed, ready, ready_pod, revision, set};
use crate::conformance::suite::{Ctx, JSON, MERGE, generation, version};

cases![
    template_policy_applies_to_creates_and_dry_runs,
    template_policy_applies_at_the_next_write_of_any_field,
    a_policy_for_templates_does_not_see_subresources,
    no_op_write_counts_where_a_policy_adds_a_field,
    policy_restores_its_field_in_the_response_to_a_write,
    set_policy_changes_claim_retention_at_the_next_write,
    pod_policy_changes_pods_but_not_template_or_revision,
    a_policy_for_pods_mirrors_images,
    pod_policy_adds_a_container_first_or_last,
    pod_policy_sees_dry_runs_but_no_updates,
    edited_revision_moves_the_set_without_a_new_generation,
    a_revision_with_other_bytes_that_mean_the_same_is_kept,
    a_revision_that_is_deleted_comes_back_under_its_name,
    an_evicted_pod_goes_as_a_deleted_one_and_comes_back,
    an_eviction_heeds_preconditions_and_dry_runs,
];

const ADDED: &str = "platform.test/scanned";

fn annotates() -> Mutation {
    Mutation::Annotation(ADDED.to_owned(), "yes".to_owned())
}

fn added(set: &Value) -> Value {
    set["spec"]["template"]["metadata"]["annotations"].clone()
}

async fn template_policy_applies_to_creates_and_dry_runs(w: &Ctx) {
    w.admit("annotates", Target::Templates, annotates()).await;
    let tried = w.post(&w.at("apps:statefulsets?dryRun=All"), set("web", json!({"replicas": 0}))).await;
    w.note("tried", json!([tried.code, added(&tried.body)]));
    w.note("stored", w.get(&w.at("apps:statefulsets/web")).await.code);
    let made = made(w, "web", json!({"replicas": 0})).await;
    w.note("made", json!([added(&made), generation(&made)]));
    let found = observed(w, "web").await["status"]["updateRevision"].clone();
    let found = w.get(&w.at(&format!("apps:controllerrevisions/{}", found.as_str().unwrap()))).await.body;
    w.note("revision", found["data"]["spec"]["template"]["metadata"].clone());
}

async fn template_policy_applies_at_the_next_write_of_any_field(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    let first = observed(w, "web").await;
    w.admit("annotates", Target::Templates, annotates()).await;
    w.note("by itself", added(&w.get(&w.at("apps:statefulsets/web")).await.body));
    let labels = json!({"metadata": {"labels": {"team": "one"}}});
    let tried = w.patch(&w.at("apps:statefulsets/web?dryRun=All"), MERGE, labels.clone()).await;
    w.note("tried", json!([tried.code, added(&tried.body), generation(&tried.body)]));
    let answer = w.patch(&w.at("apps:statefulsets/web"), MERGE, labels).await;
    w.note("answer", json!([answer.code, added(&answer.body), generation(&answer.body)]));
    let second = observed(w, "web").await;
    w.note("moved", second["status"]["updateRevision"] != first["status"]["updateRevision"]);
    w.settle().await;
    let still = w.get(&w.at("pods/web-0")).await.body;
    w.note(
        "still",
        json!([
            still["metadata"]["uid"] == pod["metadata"]["uid"],
            revision(&still) == first["status"]["updateRevision"]
        ]),
    );
}

async fn a_policy_for_templates_does_not_see_subresources(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    w.admit("annotates", Target::Templates, annotates()).await;
    let scale = w.patch(&w.at("apps:statefulsets/web/scale"), MERGE, json!({"spec": {"replicas": 1}})).await;
    w.note("scale", scale.code);
    ready_pod(w, "web-0").await;
    let status = json!({"metadata": {"annotations": {"a": "b"}}, "status": {"collisionCount": 0}});
    w.note("status", w.patch(&w.at("apps:statefulsets/web/status"), MERGE, status).await.code);
    w.note("added", added(&observed(w, "web").await));
}

async fn no_op_write_counts_where_a_policy_adds_a_field(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    let before = observed(w, "web").await;
    w.admit("annotates", Target::Templates, annotates()).await;
    let answer = w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 0}})).await;
    w.note("first", json!([answer.code, version(&answer.body) > version(&before), added(&answer.body)]));
    let first = observed(w, "web").await;
    let answer = w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 0}})).await;
    w.note("second", json!([answer.code, version(&answer.body) == version(&first)]));
}

async fn policy_restores_its_field_in_the_response_to_a_write(w: &Ctx) {
    w.admit("annotates", Target::Templates, annotates()).await;
    made(w, "web", json!({"replicas": 0})).await;
    let before = observed(w, "web").await;
    let template = super::sets::template("web:1");
    let patch = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
    let answer = w.patch(&w.at("apps:statefulsets/web"), JSON, patch).await;
    w.note("answer", json!([answer.code, added(&answer.body), version(&answer.body) == version(&before)]));
}

async fn set_policy_changes_claim_retention_at_the_next_write(w: &Ctx) {
    let retention = |set: &Value| set["spec"]["persistentVolumeClaimRetentionPolicy"].clone();
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    made(w, "web", json!({"volumeClaimTemplates": [claim]})).await;
    ready_pod(w, "web-0").await;
    let before = observed(w, "web").await;
    let deletes = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    w.admit("claims", Target::StatefulSets, Mutation::ClaimRetention(deletes)).await;
    w.note("by itself", retention(&w.get(&w.at("apps:statefulsets/web")).await.body));
    let labels = json!({"metadata": {"labels": {"team": "one"}}});
    let answer = w.patch(&w.at("apps:statefulsets/web"), MERGE, labels).await;
    w.note("answer", json!([answer.code, retention(&answer.body), generation(&answer.body)]));
    let after = observed(w, "web").await;
    w.note("revision", after["status"]["updateRevision"] == before["status"]["updateRevision"]);
    let path = w.at("persistentvolumeclaims/data-web-0");
    let owned = w.until_is(&path, |claim| claim["metadata"]["ownerReferences"].is_array()).await;
    w.note("owners", owned["metadata"]["ownerReferences"].clone());
    let retains = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}});
    let answer = w.patch(&w.at("apps:statefulsets/web"), MERGE, retains).await;
    w.note("not let", json!([answer.code, retention(&answer.body), generation(&answer.body)]));
}

async fn pod_policy_changes_pods_but_not_template_or_revision(w: &Ctx) {
    made(w, "old", json!({})).await;
    let old = ready_pod(w, "old-0").await;
    w.admit("pins", Target::Pods, Mutation::Digests).await;
    let set = json!({"selector": {"matchLabels": {"app": "web"}}, "serviceName": "new"});
    made(w, "new", set).await;
    let new = ready_pod(w, "new-0").await;
    w.note("old", image(&w.get(&w.at("pods/old-0")).await.body));
    w.note("new", image(&new).split_once("@sha256:").map(|(name, _)| name));
    let set = observed(w, "new").await;
    w.note("template", set["spec"]["template"]["spec"]["containers"][0]["image"].clone());
    w.note("revision", json!([revision(&new) == set["status"]["updateRevision"], revision(&old)]));
}

async fn a_policy_for_pods_mirrors_images(w: &Ctx) {
    w.admit("mirrors", Target::Pods, Mutation::Mirror("mirror.test".to_owned())).await;
    made(w, "web", json!({})).await;
    w.note("image", image(&ready_pod(w, "web-0").await));
}

async fn pod_policy_adds_a_container_first_or_last(w: &Ctx) {
    for (name, container, first) in [("last", "tail", false), ("first", "head", true)] {
        w.admit(name, Target::Pods, Mutation::Container { container: proxy(container), first }).await;
    }
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let names = |list: &[Value]| list.iter().map(|c| c["name"].clone()).collect::<Value>();
    w.note("containers", names(containers));
    w.note("filled in", containers[0]["terminationMessagePath"].clone());
    w.note(
        "template",
        observed(w, "web").await["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(),
    );
    w.note("statuses", pod["status"]["containerStatuses"].as_array().unwrap().len());
}

async fn pod_policy_sees_dry_runs_but_no_updates(w: &Ctx) {
    made(w, "web", json!({})).await;
    let before = ready_pod(w, "web-0").await;
    w.admit("annotates", Target::Pods, annotates()).await;
    let body = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let tried = w.post(&w.at("pods?dryRun=All"), body).await;
    w.note("tried", json!([tried.code, tried.body["metadata"]["annotations"]]));
    let labels = json!({"metadata": {"labels": {"team": "one"}}});
    let changed = w.patch(&w.at("pods/web-0"), MERGE, labels).await;
    w.note(
        "changed",
        json!([changed.code, changed.body["metadata"]["annotations"] == before["metadata"]["annotations"]]),
    );
    w.delete(&w.at("pods/web-0"), Value::Null).await;
    let again = w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != before["metadata"]["uid"]).await;
    w.note("made again", again["metadata"]["annotations"].clone());
}

/// Replaces the revision of a pod, and makes the controller sync its set.
async fn replaced(w: &Ctx, name: &str, other: impl Fn(&mut Value)) {
    let path = w.at(&format!("apps:controllerrevisions/{name}"));
    let mut found = w.get(&path).await.body;
    let mut data = found["data"].clone();
    other(&mut data["spec"]["template"]);
    let other = data;
    w.coded("data", &w.patch(&path, JSON, json!([{"op": "replace", "path": "/data", "value": other}])).await);
    for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
        found["metadata"].as_object_mut().unwrap().remove(field);
    }
    found["data"] = other;
    // A controller that syncs at that moment recreates its own first.
    let mut code = 0;
    for _ in 0..5 {
        w.delete(&path, Value::Null).await;
        code = w.post(&w.at("apps:controllerrevisions"), found.clone()).await.code;
        if code != 409 {
            break;
        }
    }
    w.note("made", code);
    // The controller watches pods, not revisions.
    w.patch(&w.at("pods/web-0"), MERGE, json!({"metadata": {"annotations": {"look": "again"}}})).await;
}

/// Another version of the controller, which reads revisions differently, does this to every set: 1.34 after 1.33.
async fn edited_revision_moves_the_set_without_a_new_generation(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    let before = observed(w, "web").await;
    let name = revision(&pod).to_owned();
    replaced(w, &name, |template| template["spec"]["terminationGracePeriodSeconds"] = 2.into()).await;
    let after = w
        .until_is(&w.at("apps:statefulsets/web"), |s| {
            s["status"]["updateRevision"] != before["status"]["updateRevision"]
        })
        .await;
    w.note("generation", generation(&after) == generation(&before));
    w.note("observed", after["status"]["observedGeneration"] == before["status"]["observedGeneration"]);
    w.note("spec", after["spec"] == before["spec"]);
    w.note(
        "counts",
        json!([
            after["status"]["updatedReplicas"],
            after["status"]["readyReplicas"],
            after["status"]["collisionCount"]
        ]),
    );
    w.note("name", after["status"]["updateRevision"].clone());
    w.settle().await;
    let still = w.get(&w.at("pods/web-0")).await.body;
    w.note("still", json!([still["metadata"]["uid"] == pod["metadata"]["uid"], revision(&still) == name]));
}

async fn a_revision_with_other_bytes_that_mean_the_same_is_kept(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    let before = observed(w, "web").await;
    replaced(w, revision(&pod), |template| template["metadata"]["creationTimestamp"] = Value::Null).await;
    w.settle().await;
    let after = w.get(&w.at("apps:statefulsets/web")).await.body;
    w.note("kept", after["status"]["updateRevision"] == before["status"]["updateRevision"]);
}

async fn a_revision_that_is_deleted_comes_back_under_its_name(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    let path = w.at(&format!("apps:controllerrevisions/{}", revision(&pod)));
    w.delete(&path, Value::Null).await;
    w.patch(&w.at("pods/web-0"), MERGE, json!({"metadata": {"annotations": {"look": "again"}}})).await;
    let back = w.until("the revision", async || {
        let found = w.get(&path).await;
        (found.code == 200).then_some(found.body)
    });
    w.note("number", back.await["revision"].clone());
    w.note("set", observed(w, "web").await["status"]["updateRevision"] == revision(&pod));
}

fn eviction(name: &str, options: Value) -> Value {
    let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    if !options.is_null() {
        body["deleteOptions"] = options;
    }
    body
}

async fn an_evicted_pod_goes_as_a_deleted_one_and_comes_back(w: &Ctx) {
    made(w, "web", json!({})).await;
    let before = ready_pod(w, "web-0").await;
    let answer = w.post(&w.at("pods/web-0/eviction"), eviction("web-0", Value::Null)).await;
    w.note("answer", json!([answer.code, answer.body["kind"], answer.body["status"]]));
    let after = w
        .until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != before["metadata"]["uid"] && ready(p))
        .await;
    w.note("after", json!([revision(&after) == revision(&before), image(&after)]));
    w.said("missing", &w.post(&w.at("pods/none/eviction"), eviction("none", Value::Null)).await);
}

async fn an_eviction_heeds_preconditions_and_dry_runs(w: &Ctx) {
    made(w, "web", json!({})).await;
    let before = ready_pod(w, "web-0").await;
    let another = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    w.coded("another", &w.post(&w.at("pods/web-0/eviction"), eviction("web-0", another)).await);
    let dry = eviction("web-0", json!({"dryRun": ["All"]}));
    w.note("dry", w.post(&w.at("pods/web-0/eviction"), dry).await.code);
    w.settle().await;
    let still = w.get(&w.at("pods/web-0")).await.body;
    w.note(
        "still",
        json!([
            still["metadata"]["uid"] == before["metadata"]["uid"],
            still["metadata"]["deletionTimestamp"]
        ]),
    );
}
