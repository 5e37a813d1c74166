//! StatefulSets and their controller.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::{Answer, Ctx, JSON, MERGE, generation};

cases![
    a_set_makes_its_pods_and_names_its_revision,
    a_sets_pod_carries_the_labels_of_its_place_and_revision,
    a_sets_spec_is_filled_in,
    a_set_whose_pod_is_deleted_makes_it_again_with_another_uid,
    an_ordered_set_waits_for_each_pod,
    a_parallel_set_makes_all_pods_at_once,
    scaled_in_set_deletes_the_highest_pod_and_keeps_its_claim,
    claims_carry_the_labels_of_the_selector,
    a_deleted_set_takes_its_pods_and_leaves_its_claims,
    an_orphaned_set_leaves_its_pods_and_a_new_one_adopts_them,
    orphaned_revisions_and_claims_stay_and_a_new_set_adopts_the_revisions,
    a_pod_that_loses_its_label_is_let_go_and_replaced,
    only_some_fields_of_a_set_may_change,
    a_sets_selector_must_match_its_template,
    set_with_a_dotted_or_long_name_never_gets_a_pod,
    a_set_with_a_bad_template_is_refused,
    the_pods_of_a_set_follow_the_update_of_their_status,
    claims_are_deleted_with_the_set_if_it_requests_it,
];

pub fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]},
    })
}

/// An `OnDelete` set, with `spec` merged.
pub fn set(name: &str, spec: Value) -> Value {
    let mut full = json!({
        "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": "web"}},
        "template": template("web:1"), "updateStrategy": {"type": "OnDelete"},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": full})
}

pub async fn made(w: &Ctx, name: &str, spec: Value) -> Value {
    w.made(&w.at("apps:statefulsets"), set(name, spec)).await
}

pub fn ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

pub async fn ready_pod(w: &Ctx, name: &str) -> Value {
    w.until_is(&w.at(&format!("pods/{name}")), |p| ready(p) && p["metadata"]["deletionTimestamp"].is_null())
        .await
}

pub async fn observed(w: &Ctx, name: &str) -> Value {
    w.until_is(&w.at(&format!("apps:statefulsets/{name}")), |s| {
        s["status"]["observedGeneration"] == s["metadata"]["generation"]
    })
    .await
}

pub async fn set_image(w: &Ctx, name: &str, image: &str) -> Answer {
    let patch = json!([{"op": "replace", "path": "/spec/template", "value": template(image)}]);
    w.patch(&w.at(&format!("apps:statefulsets/{name}")), JSON, patch).await
}

pub fn revision(pod: &Value) -> &str {
    pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap_or_default()
}

pub fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// The name of a revision is a hash of the whole template with its defaults: both must agree on every byte.
async fn a_set_makes_its_pods_and_names_its_revision(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    w.note("revision", revision(&pod));
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["availableReplicas"] == 1).await;
    w.note("status", set["status"].clone());
}

async fn a_sets_pod_carries_the_labels_of_its_place_and_revision(w: &Ctx) {
    let mut body = set("web", json!({}));
    body["spec"]["template"]["metadata"]["annotations"] = json!({"a": "b"});
    w.made(&w.at("apps:statefulsets"), body).await;
    let pod = ready_pod(w, "web-0").await;
    w.note("labels", pod["metadata"]["labels"].clone());
    w.note("annotations", pod["metadata"]["annotations"].clone());
    w.note("generateName", pod["metadata"]["generateName"].clone());
    w.note("owners", pod["metadata"]["ownerReferences"].clone());
    w.note("host", json!([pod["spec"]["hostname"], pod["spec"]["subdomain"]]));
}

async fn a_sets_spec_is_filled_in(w: &Ctx) {
    let body = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "replicas": 0,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}],
    }});
    let made = w.made(&w.at("apps:statefulsets"), body).await;
    w.note("spec", made["spec"].clone());
    w.note("status", made["status"].clone());
    w.note("generation", generation(&made));
}

async fn a_set_whose_pod_is_deleted_makes_it_again_with_another_uid(w: &Ctx) {
    made(w, "web", json!({})).await;
    let old = ready_pod(w, "web-0").await;
    w.delete(&w.at("pods/web-0"), Value::Null).await;
    let new = w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != old["metadata"]["uid"]).await;
    w.note("same revision", revision(&new) == revision(&old));
}

async fn an_ordered_set_waits_for_each_pod(w: &Ctx) {
    let mut body = set("web", json!({"replicas": 2}));
    body["spec"]["template"] = template("web:unready");
    w.made(&w.at("apps:statefulsets"), body).await;
    w.until_is(&w.at("pods/web-0"), |p| p["status"]["phase"] == "Running").await;
    w.settle().await;
    w.coded("second pod", &w.get(&w.at("pods/web-1")).await);
    let set = w.get(&w.at("apps:statefulsets/web")).await.body;
    w.note(
        "status",
        json!([set["status"]["replicas"], set["status"]["readyReplicas"], set["status"]["currentReplicas"]]),
    );
}

async fn a_parallel_set_makes_all_pods_at_once(w: &Ctx) {
    let mut body = set("web", json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
    body["spec"]["template"] = template("web:unready");
    w.made(&w.at("apps:statefulsets"), body).await;
    for name in ["web-0", "web-1", "web-2"] {
        w.until_is(&w.at(&format!("pods/{name}")), |p| p["status"]["phase"] == "Running").await;
    }
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["replicas"] == 3).await;
    w.note("status", json!([set["status"]["readyReplicas"], set["status"]["updatedReplicas"]]));
}

pub fn claims() -> Value {
    json!([{"metadata": {"name": "data", "labels": {"kept": "yes"}}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}])
}

async fn scaled_in_set_deletes_the_highest_pod_and_keeps_its_claim(w: &Ctx) {
    made(w, "web", json!({"replicas": 2, "volumeClaimTemplates": claims()})).await;
    ready_pod(w, "web-0").await;
    ready_pod(w, "web-1").await;
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 1}})).await;
    w.until_gone(&w.at("pods/web-1")).await;
    w.coded("lower", &w.get(&w.at("pods/web-0")).await);
    w.coded("claim", &w.get(&w.at("persistentvolumeclaims/data-web-1")).await);
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 0}})).await;
    w.until_gone(&w.at("pods/web-0")).await;
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["replicas"] == 0).await;
    w.note("status", set["status"].clone());
}

async fn claims_carry_the_labels_of_the_selector(w: &Ctx) {
    made(w, "web", json!({"volumeClaimTemplates": claims()})).await;
    let pod = ready_pod(w, "web-0").await;
    let claim = w.get(&w.at("persistentvolumeclaims/data-web-0")).await.body;
    w.note("labels", claim["metadata"]["labels"].clone());
    w.note("owners", claim["metadata"]["ownerReferences"].clone());
    w.note("phase", claim["status"]["phase"].clone());
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|v| v["name"] == "data").unwrap();
    w.note("volume", volume.clone());
}

async fn a_deleted_set_takes_its_pods_and_leaves_its_claims(w: &Ctx) {
    made(w, "web", json!({"volumeClaimTemplates": claims()})).await;
    ready_pod(w, "web-0").await;
    let answer = w.delete(&w.at("apps:statefulsets/web"), Value::Null).await;
    w.note("delete", json!([answer.code, answer.body["kind"]]));
    w.until_gone(&w.at("pods/web-0")).await;
    w.settle().await;
    w.coded("claim", &w.get(&w.at("persistentvolumeclaims/data-web-0")).await);
    let revisions = w.get(&w.at("apps:controllerrevisions")).await.body;
    w.note("revisions", revisions["items"].as_array().unwrap().len());
}

async fn an_orphaned_set_leaves_its_pods_and_a_new_one_adopts_them(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    w.delete(&w.at("apps:statefulsets/web"), json!({"propagationPolicy": "Orphan"})).await;
    w.until_gone(&w.at("apps:statefulsets/web")).await;
    let orphan = w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["ownerReferences"].is_null()).await;
    w.note("same pod", orphan["metadata"]["uid"] == pod["metadata"]["uid"]);
    let new = made(w, "web", json!({})).await;
    let adopted = w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["ownerReferences"].is_array()).await;
    w.note(
        "adopted",
        json!([
            adopted["metadata"]["uid"] == pod["metadata"]["uid"],
            adopted["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]
        ]),
    );
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["readyReplicas"] == 1).await;
    w.note("same revision", set["status"]["updateRevision"] == revision(&pod));
}

/// A StatefulSet that is created again with other claim templates keeps its revision: that has the pod template only.
async fn orphaned_revisions_and_claims_stay_and_a_new_set_adopts_the_revisions(w: &Ctx) {
    made(w, "web", json!({"volumeClaimTemplates": claims()})).await;
    let pod = ready_pod(w, "web-0").await;
    let path = w.at(&format!("apps:controllerrevisions/{}", revision(&pod)));
    let before = w.get(&path).await.body;
    w.delete(&w.at("apps:statefulsets/web"), json!({"propagationPolicy": "Orphan"})).await;
    w.until_gone(&w.at("apps:statefulsets/web")).await;
    let left = w.until_is(&path, |r| r["metadata"]["ownerReferences"].is_null()).await;
    w.note("same revision", left["metadata"]["uid"] == before["metadata"]["uid"]);
    w.coded("claim", &w.get(&w.at("persistentvolumeclaims/data-web-0")).await);
    let mut larger = claims();
    larger[0]["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
    let new = made(w, "web", json!({"volumeClaimTemplates": larger})).await;
    let adopted = w.until_is(&path, |r| r["metadata"]["ownerReferences"].is_array()).await;
    let mut owner = adopted["metadata"]["ownerReferences"].clone();
    w.note("by the new set", owner[0]["uid"] == new["metadata"]["uid"]);
    owner[0]["uid"] = json!("");
    w.note("adopted", owner);
    w.note("number", json!([before["revision"], adopted["revision"]]));
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["readyReplicas"] == 1).await;
    w.note("update revision", set["status"]["updateRevision"] == revision(&pod));
    w.settle().await;
    let revisions = w.get(&w.at("apps:controllerrevisions")).await.body;
    w.note("revisions", revisions["items"].as_array().unwrap().len());
    let kept = w.get(&w.at("pods/web-0")).await.body;
    w.note("same pod", kept["metadata"]["uid"] == pod["metadata"]["uid"]);
    let claim = w.get(&w.at("persistentvolumeclaims/data-web-0")).await.body;
    w.note("claim's request", claim["spec"]["resources"]["requests"].clone());
}

async fn a_pod_that_loses_its_label_is_let_go_and_replaced(w: &Ctx) {
    made(w, "web", json!({})).await;
    let pod = ready_pod(w, "web-0").await;
    w.patch(&w.at("pods/web-0"), MERGE, json!({"metadata": {"labels": {"app": null}}})).await;
    let free = w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["ownerReferences"].is_null()).await;
    w.note("let go", free["metadata"]["uid"] == pod["metadata"]["uid"]);
    w.settle().await;
    // The name is taken: the set has no pod until the released one is deleted.
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["replicas"] == 0).await;
    w.note("replicas", set["status"]["replicas"].clone());
    w.delete(&w.at("pods/web-0"), json!({"gracePeriodSeconds": 0})).await;
    let new = ready_pod(w, "web-0").await;
    w.note("new", new["metadata"]["uid"] != pod["metadata"]["uid"]);
}

async fn only_some_fields_of_a_set_may_change(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web");
    w.said("serviceName", &w.patch(&path, MERGE, json!({"spec": {"serviceName": "other"}})).await);
    w.coded(
        "selector",
        &w.patch(&path, MERGE, json!({"spec": {"selector": {"matchLabels": {"b": "c"}}}})).await,
    );
    w.coded("claims", &w.patch(&path, MERGE, json!({"spec": {"volumeClaimTemplates": claims()}})).await);
    w.coded("policy", &w.patch(&path, MERGE, json!({"spec": {"podManagementPolicy": "Parallel"}})).await);
    let allowed = json!({"replicas": 0, "minReadySeconds": 1, "revisionHistoryLimit": 2, "ordinals": {"start": 1},
        "updateStrategy": {"type": "RollingUpdate"}, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}});
    let answer = w.patch(&path, MERGE, json!({"spec": allowed})).await;
    w.coded("the rest", &answer);
    w.note("strategy", answer.body["spec"]["updateStrategy"].clone());
}

async fn a_sets_selector_must_match_its_template(w: &Ctx) {
    let body = set("web", json!({"selector": {"matchLabels": {"other": "x"}}}));
    w.said("other", &w.post(&w.at("apps:statefulsets"), body).await);
    let body = set("web", json!({"selector": {}}));
    w.coded("empty", &w.post(&w.at("apps:statefulsets"), body).await);
    let mut body = set("web", json!({}));
    body["spec"].as_object_mut().unwrap().remove("selector");
    w.coded("none", &w.post(&w.at("apps:statefulsets"), body).await);
}

async fn set_with_a_dotted_or_long_name_never_gets_a_pod(w: &Ctx) {
    w.said("dots", &w.post(&w.at("apps:statefulsets"), set("a.b", json!({"serviceName": "x"}))).await);
    let name = "n".repeat(53);
    let answer = w.post(&w.at("apps:statefulsets"), set(&name, json!({"serviceName": "x"}))).await;
    w.note("53 characters", answer.code);
    w.settle().await;
    w.note("pod", w.get(&w.at(&format!("pods/{name}-0"))).await.code);
    w.note(
        "64 characters",
        w.post(&w.at("apps:statefulsets"), set(&"n".repeat(64), json!({"serviceName": "x"}))).await.code,
    );
}

async fn a_set_with_a_bad_template_is_refused(w: &Ctx) {
    let with = |change: Value| {
        let mut body = set("web", json!({}));
        for (key, value) in change.as_object().unwrap() {
            body["spec"]["template"]["spec"][key] = value.clone();
        }
        body
    };
    w.said("never", &w.post(&w.at("apps:statefulsets"), with(json!({"restartPolicy": "Never"}))).await);
    w.said(
        "no image",
        &w.post(&w.at("apps:statefulsets"), with(json!({"containers": [{"name": "a"}]}))).await,
    );
    w.said("no containers", &w.post(&w.at("apps:statefulsets"), with(json!({"containers": []}))).await);
    let misspelt = with(json!({"containers": [{"name": "a", "image": "x", "imagePulPolicy": "Always"}]}));
    w.said("misspelt", &w.post(&w.at("apps:statefulsets?fieldValidation=Strict&dryRun=All"), misspelt).await);
    let quantity =
        with(json!({"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "abc"}}}]}));
    w.said("quantity", &w.post(&w.at("apps:statefulsets?dryRun=All"), quantity).await);
    let number = with(json!({"terminationGracePeriodSeconds": "soon"}));
    w.said("number", &w.post(&w.at("apps:statefulsets?dryRun=All"), number).await);
    let port =
        with(json!({"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 70000}]}]}));
    w.said("port", &w.post(&w.at("apps:statefulsets?dryRun=All"), port).await);
    let mount = with(
        json!({"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
    );
    w.said("mount", &w.post(&w.at("apps:statefulsets?dryRun=All"), mount).await);
}

async fn the_pods_of_a_set_follow_the_update_of_their_status(w: &Ctx) {
    made(w, "web", json!({})).await;
    ready_pod(w, "web-0").await;
    let set = w.until_is(&w.at("apps:statefulsets/web"), |s| s["status"]["readyReplicas"] == 1).await;
    w.note("observed", set["status"]["observedGeneration"].clone());
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 0}})).await;
    w.until_gone(&w.at("pods/web-0")).await;
    let set = w
        .until_is(&w.at("apps:statefulsets/web"), |s| {
            s["status"]["replicas"] == 0 && s["status"]["observedGeneration"] == 2
        })
        .await;
    w.note("ready", set["status"]["readyReplicas"].clone());
}

async fn claims_are_deleted_with_the_set_if_it_requests_it(w: &Ctx) {
    let policy = json!({"whenDeleted": "Delete"});
    made(w, "web", json!({"volumeClaimTemplates": claims(), "persistentVolumeClaimRetentionPolicy": policy}))
        .await;
    ready_pod(w, "web-0").await;
    let claim = w
        .until_is(&w.at("persistentvolumeclaims/data-web-0"), |c| c["metadata"]["ownerReferences"].is_array())
        .await;
    w.note("owners", claim["metadata"]["ownerReferences"].clone());
    w.delete(&w.at("apps:statefulsets/web"), Value::Null).await;
    w.until_gone(&w.at("pods/web-0")).await;
    w.until_gone(&w.at("persistentvolumeclaims/data-web-0")).await;
}
