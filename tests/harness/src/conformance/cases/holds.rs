//! Sets whose updates are held by a partition above every ordinal, and the windows of `OnDelete` in which a deleted
//! pod moves.
//!
//! In the notes a revision is `old` (the one that the set was made with) or `new`, and a pod is the tag of its image.

use serde_json::{Value, json};
use windlass_sim::kubelet::STEER_LABEL;

use super::cases;
use super::sets::{image, made, observed, ready, ready_pod, revision, set_image};
use crate::conformance::suite::{Answer, Ctx, JSON, MERGE, generation};

cases![
    held_set_creates_pods_at_the_current_revision,
    a_pod_deleted_in_a_window_moves_in_any_order,
    a_window_is_open_for_every_pod_that_is_made,
    held_set_completes_when_its_last_pod_is_ready,
    held_set_completes_on_ready_not_on_available,
    a_moved_pod_that_is_deleted_while_held_goes_back,
    a_moved_pod_that_is_evicted_while_held_goes_back,
    a_template_that_goes_back_or_on_leaves_the_moved_pods,
    a_set_that_was_updated_on_delete_completes_when_held,
    a_held_set_that_is_scaled_to_its_moved_pods_completes,
    a_held_set_in_order_makes_no_pod_above_one_that_is_not_ready,
    a_held_parallel_set_makes_pods_above_one_that_is_not_ready,
    fixed_template_replaces_a_broken_pod_and_higher_ordinals,
    rolling_update_held_midway_continues_when_released,
    a_strategy_is_checked_and_filled_in,
];

fn hold() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1_000_000}})
}

fn window() -> Value {
    json!({"type": "OnDelete"})
}

/// Writes `updateStrategy`, and waits until the controller has observed it.
async fn write(w: &Ctx, strategy: Value) -> Value {
    let patch = json!([{"op": "replace", "path": "/spec/updateStrategy", "value": strategy}]);
    let answer = w.patch(&w.at("apps:statefulsets/web"), JSON, patch).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    observed(w, "web").await
}

/// Makes a set `web` with Ready replicas at `web:1`, held unless `spec` has another strategy. Then changes its image, and
/// returns its first revision.
async fn held(w: &Ctx, replicas: i64, then: &str, spec: Value) -> String {
    let mut full = json!({"replicas": replicas, "updateStrategy": hold()});
    for (key, value) in spec.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    made(w, "web", full).await;
    for ordinal in 0..replicas {
        ready_pod(w, &format!("web-{ordinal}")).await;
    }
    let set = settled(w, replicas).await;
    set_image(w, "web", then).await;
    observed(w, "web").await;
    set["status"]["currentRevision"].as_str().unwrap().to_owned()
}

/// The set once it has observed its spec and this many pods are Ready.
async fn settled(w: &Ctx, ready: i64) -> Value {
    w.until_is(&w.at("apps:statefulsets/web"), |s| {
        s["status"]["observedGeneration"] == s["metadata"]["generation"]
            && s["status"]["readyReplicas"].as_i64().unwrap_or(0) == ready
    })
    .await
}

async fn pod(w: &Ctx, ordinal: i64) -> Value {
    w.get(&w.at(&format!("pods/web-{ordinal}"))).await.body
}

/// Deletes a pod by its UID.
async fn delete(w: &Ctx, ordinal: i64) -> (Answer, Value) {
    let old = pod(w, ordinal).await["metadata"]["uid"].clone();
    let options = json!({"preconditions": {"uid": old}});
    (w.delete(&w.at(&format!("pods/web-{ordinal}")), options).await, old)
}

/// Deletes a pod, and waits until another one of its name passes the test.
async fn replaced(w: &Ctx, ordinal: i64, test: impl Fn(&Value) -> bool) -> Value {
    let (_, old) = delete(w, ordinal).await;
    w.until_is(&w.at(&format!("pods/web-{ordinal}")), |p| p["metadata"]["uid"] != old && test(p)).await
}

/// True if the pod runs, and is not Ready.
fn broken(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && !ready(pod)
}

/// The tags of the pods' images; none where there is no pod.
async fn tags(w: &Ctx, replicas: i64) -> String {
    let mut tags = Vec::new();
    for ordinal in 0..replicas {
        let pod = pod(w, ordinal).await;
        tags.push(image(&pod).rsplit(':').next().filter(|tag| !tag.is_empty()).unwrap_or("none").to_owned());
    }
    tags.join(" ")
}

/// Where a set stands: its revisions, and how many pods it counts at each.
fn standing(set: &Value, old: &str) -> Value {
    let status = &set["status"];
    let named = |field: &str| if status[field] == old { "old" } else { "new" };
    json!({
        "current": named("currentRevision"), "update": named("updateRevision"),
        "currentReplicas": status["currentReplicas"], "updatedReplicas": status["updatedReplicas"],
        "readyReplicas": status["readyReplicas"],
    })
}

async fn note_standing(w: &Ctx, what: &str, old: &str, replicas: i64, ready: i64) {
    w.settle().await;
    let set = settled(w, ready).await;
    w.note(what, json!([tags(w, replicas).await, standing(&set, old)]));
}

/// The set once it has completed.
async fn completed(w: &Ctx, old: &str) -> Value {
    w.until_is(&w.at("apps:statefulsets/web"), |s| {
        s["status"]["currentRevision"] != old
            && s["status"]["currentRevision"] == s["status"]["updateRevision"]
    })
    .await
}

async fn held_set_creates_pods_at_the_current_revision(w: &Ctx) {
    let old = held(w, 3, "web:2", json!({})).await;
    let before = [pod(w, 0).await, pod(w, 1).await, pod(w, 2).await];
    note_standing(w, "held", &old, 3, 3).await;
    let lost = replaced(w, 1, ready).await;
    w.note("lost", json!([image(&lost), revision(&lost) == old]));
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 4}})).await;
    let added = ready_pod(w, "web-3").await;
    w.note("added", json!([image(&added), revision(&added) == old]));
    w.note("place", added["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"].clone());
    note_standing(w, "then", &old, 4, 4).await;
    let same = async |at: usize| pod(w, at as i64).await["metadata"]["uid"] == before[at]["metadata"]["uid"];
    w.note("others", json!([same(0).await, same(2).await]));
}

/// A write of the strategy makes a generation, and no revision.
async fn a_pod_deleted_in_a_window_moves_in_any_order(w: &Ctx) {
    let old = held(w, 3, "web:2", json!({})).await;
    let update = observed(w, "web").await["status"]["updateRevision"].clone();
    for ordinal in [1, 0, 2] {
        let open = write(w, window()).await;
        let moved = replaced(w, ordinal, ready).await;
        w.note("moved", json!([ordinal, json!(revision(&moved)) == update, generation(&open)]));
        // The last window stays open, to see that the set does not complete in it.
        note_standing(w, "in the window", &old, 3, 3).await;
        let closed = if ordinal == 2 { Value::Null } else { write(w, hold()).await };
        w.note("closed", json!([closed["status"]["observedGeneration"], closed["metadata"]["generation"]]));
    }
    write(w, hold()).await;
    let done = completed(w, &old).await;
    w.note("held again", json!([tags(w, 3).await, standing(&done, &old)]));
    w.note("same revision", done["status"]["updateRevision"] == update);
}

async fn a_window_is_open_for_every_pod_that_is_made(w: &Ctx) {
    let old = held(w, 2, "web:2", json!({})).await;
    write(w, window()).await;
    w.note("lost", image(&replaced(w, 0, ready).await));
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 3}})).await;
    w.note("added", image(&ready_pod(w, "web-2").await));
    write(w, hold()).await;
    note_standing(w, "held again", &old, 3, 3).await;
}

async fn held_set_completes_when_its_last_pod_is_ready(w: &Ctx) {
    // Ready after five seconds: time to hold the set before.
    let old = held(w, 1, "web:slow", json!({})).await;
    write(w, window()).await;
    replaced(w, 0, broken).await;
    let set = write(w, hold()).await;
    w.note("not Ready", standing(&set, &old));
    w.note("Ready", standing(&completed(w, &old).await, &old));
    // A completed set has only one revision: a deleted pod does not go back.
    w.note("deleted now", image(&replaced(w, 0, |_| true).await));
}

async fn held_set_completes_on_ready_not_on_available(w: &Ctx) {
    let old = held(w, 1, "web:2", json!({"minReadySeconds": 3600})).await;
    write(w, window()).await;
    replaced(w, 0, ready).await;
    write(w, hold()).await;
    let set = completed(w, &old).await;
    w.note("completed", json!([standing(&set, &old), set["status"]["availableReplicas"]]));
}

async fn a_moved_pod_that_is_deleted_while_held_goes_back(w: &Ctx) {
    let old = held(w, 3, "web:2", json!({})).await;
    let other = pod(w, 1).await;
    write(w, window()).await;
    replaced(w, 2, ready).await;
    replaced(w, 0, ready).await;
    write(w, hold()).await;
    note_standing(w, "moved", &old, 3, 3).await;
    let options = json!({"preconditions": {"uid": other["metadata"]["uid"]}});
    w.coded("the UID of another", &w.delete(&w.at("pods/web-0"), options).await);
    for ordinal in [0, 2] {
        let back = replaced(w, ordinal, ready).await;
        w.note("back", json!([image(&back), revision(&back) == old]));
    }
    note_standing(w, "then", &old, 3, 3).await;
    w.note("the other", pod(w, 1).await["metadata"]["uid"] == other["metadata"]["uid"]);
}

/// The controller replaces a pod that ended, and does not ask which revision it had.
async fn a_moved_pod_that_is_evicted_while_held_goes_back(w: &Ctx) {
    let old = held(w, 2, "web:2", json!({})).await;
    write(w, window()).await;
    let moved = replaced(w, 0, ready).await;
    write(w, hold()).await;
    let evicted =
        json!({"metadata": {"name": "steer", "labels": {STEER_LABEL: "true"}}, "data": {"web-0": "evicted"}});
    w.made(&w.at("configmaps"), evicted).await;
    w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != moved["metadata"]["uid"]).await;
    w.delete(&w.at("configmaps/steer"), Value::Null).await;
    w.settle().await;
    w.note("back", image(&ready_pod(w, "web-0").await));
    note_standing(w, "then", &old, 2, 2).await;
}

async fn a_template_that_goes_back_or_on_leaves_the_moved_pods(w: &Ctx) {
    let old = held(w, 3, "web:2", json!({})).await;
    let second = observed(w, "web").await["status"]["updateRevision"].clone();
    write(w, window()).await;
    replaced(w, 1, ready).await;
    write(w, hold()).await;
    set_image(w, "web", "web:3").await;
    let set = observed(w, "web").await;
    w.note("third", json!([set["status"]["updateRevision"] == second, standing(&set, &old)]));
    set_image(w, "web", "web:1").await;
    observed(w, "web").await;
    note_standing(w, "back", &old, 3, 3).await;
    // The first revision has the highest number again.
    let list = w.get(&w.at("apps:controllerrevisions?labelSelector=app%3Dweb")).await.body;
    let mut numbers: Vec<i64> =
        list["items"].as_array().unwrap().iter().filter_map(|r| r["revision"].as_i64()).collect();
    numbers.sort_unstable();
    w.note("numbers", json!(numbers));
    let back = replaced(w, 1, ready).await;
    w.note("deleted", json!([image(&back), revision(&back) == old]));
    note_standing(w, "then", &old, 3, 3).await;
}

async fn a_set_that_was_updated_on_delete_completes_when_held(w: &Ctx) {
    let old = held(w, 2, "web:2", json!({"updateStrategy": window()})).await;
    for ordinal in [0, 1] {
        replaced(w, ordinal, ready).await;
    }
    note_standing(w, "on delete", &old, 2, 2).await;
    write(w, hold()).await;
    w.note("held", standing(&completed(w, &old).await, &old));
}

/// The controller compares the counts with `spec.replicas`, so that a set with no replicas completes at every template.
async fn a_held_set_that_is_scaled_to_its_moved_pods_completes(w: &Ctx) {
    let old = held(w, 2, "web:2", json!({})).await;
    write(w, window()).await;
    replaced(w, 0, ready).await;
    write(w, hold()).await;
    note_standing(w, "moved", &old, 2, 2).await;
    for (replicas, next) in [(1, "web:3"), (0, "web:4")] {
        w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": replicas}})).await;
        w.until_gone(&w.at(&format!("pods/web-{replicas}"))).await;
        let done = completed(w, &old).await;
        w.note("fewer", json!([replicas, standing(&done, &old)]));
        set_image(w, "web", next).await;
        let set = observed(w, "web").await;
        w.note("next", set["status"]["currentRevision"] == done["status"]["currentRevision"]);
    }
    w.until_is(&w.at("apps:statefulsets/web"), |s| {
        s["status"]["currentRevision"] == s["status"]["updateRevision"] && s["status"]["replicas"] == 0
    })
    .await;
    w.patch(&w.at("apps:statefulsets/web"), MERGE, json!({"spec": {"replicas": 1}})).await;
    w.note("added", image(&ready_pod(w, "web-0").await));
}

/// Breaks the lowest pod in a window, holds the set, and then loses the highest pod.
async fn with_a_broken_and_a_lost_pod(w: &Ctx, policy: &str) -> String {
    let old = held(w, 3, "web:unready", json!({"podManagementPolicy": policy})).await;
    write(w, window()).await;
    replaced(w, 0, broken).await;
    write(w, hold()).await;
    let (_, uid) = delete(w, 2).await;
    let path = w.at("pods/web-2");
    w.until("the highest pod to be gone", async || {
        (w.get(&path).await.body["metadata"]["uid"] != uid).then_some(())
    })
    .await;
    w.settle().await;
    w.note("broken and lost", tags(w, 3).await);
    old
}

async fn a_held_set_in_order_makes_no_pod_above_one_that_is_not_ready(w: &Ctx) {
    let old = with_a_broken_and_a_lost_pod(w, "OrderedReady").await;
    let set = observed(w, "web").await;
    w.note("standing", json!([set["status"]["replicas"], standing(&set, &old)]));
    // A window changes nothing about it.
    write(w, window()).await;
    w.settle().await;
    w.note("in a window", tags(w, 3).await);
    write(w, hold()).await;
    let back = replaced(w, 0, ready).await;
    w.note("repaired", json!([image(&back), revision(&back) == old]));
    w.note("the lost one", image(&ready_pod(w, "web-2").await));
    note_standing(w, "then", &old, 3, 3).await;
}

async fn a_held_parallel_set_makes_pods_above_one_that_is_not_ready(w: &Ctx) {
    let old = with_a_broken_and_a_lost_pod(w, "Parallel").await;
    w.note("the lost one", image(&ready_pod(w, "web-2").await));
    note_standing(w, "then", &old, 3, 2).await;
}

async fn fixed_template_replaces_a_broken_pod_and_higher_ordinals(w: &Ctx) {
    let old = with_a_broken_and_a_lost_pod(w, "OrderedReady").await;
    set_image(w, "web", "web:3").await;
    observed(w, "web").await;
    w.settle().await;
    w.note("held", tags(w, 3).await);
    write(w, window()).await;
    w.note("fixed", image(&replaced(w, 0, ready).await));
    // The controller makes the pod at the new template, because the window is open.
    w.note("the lost one", image(&ready_pod(w, "web-2").await));
    write(w, hold()).await;
    note_standing(w, "then", &old, 3, 3).await;
}

async fn rolling_update_held_midway_continues_when_released(w: &Ctx) {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    let old = held(w, 3, "web:1", json!({"updateStrategy": rolling})).await;
    // The finalizer keeps the pod until the set is held. The controller then makes it again as it was.
    w.patch(&w.at("pods/web-2"), MERGE, json!({"metadata": {"finalizers": ["conformance.test/held"]}})).await;
    set_image(w, "web", "web:2").await;
    w.until_is(&w.at("pods/web-2"), |p| p["metadata"]["deletionTimestamp"].is_string()).await;
    write(w, hold()).await;
    w.patch(&w.at("pods/web-2"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_is(&w.at("pods/web-2"), |p| ready(p) && p["metadata"]["deletionTimestamp"].is_null()).await;
    note_standing(w, "held", &old, 3, 3).await;
    write(w, rolling).await;
    let done = completed(w, &old).await;
    w.note("released", json!([tags(w, 3).await, standing(&done, &old)]));
}

async fn a_strategy_is_checked_and_filled_in(w: &Ctx) {
    held(w, 0, "web:1", json!({})).await;
    for strategy in [
        json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
        json!({"type": "OnDelete", "rollingUpdate": null}),
        json!({"type": "RollingUpdate", "rollingUpdate": null}),
        json!({"type": "RollingUpdate", "rollingUpdate": {}}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": -1}}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": 2}}),
        json!({"rollingUpdate": {"partition": 5}}),
        json!({"type": "Later"}),
        json!({}),
        Value::Null,
    ] {
        let patch = json!([{"op": "replace", "path": "/spec/updateStrategy", "value": strategy}]);
        let answer = w.patch(&w.at("apps:statefulsets/web?dryRun=All"), JSON, patch).await;
        w.said("answer", &answer);
        w.note("stored", answer.body["spec"]["updateStrategy"].clone());
    }
    // A merge keeps the partition, which the type `OnDelete` forbids.
    let merged = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
    w.said("merged", &w.patch(&w.at("apps:statefulsets/web?dryRun=All"), MERGE, merged).await);
    let merged = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    let answer = w.patch(&w.at("apps:statefulsets/web?dryRun=All"), MERGE, merged).await;
    w.note("merged with null", answer.body["spec"]["updateStrategy"].clone());
}
