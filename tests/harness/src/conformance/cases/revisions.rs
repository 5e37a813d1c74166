//! Revisions of sets, and how their controller updates pods.

use serde_json::{Value, json};

use super::cases;
use super::sets::{image, made, observed, ready, ready_pod, revision, set, set_image};
use crate::conformance::suite::{Ctx, MERGE, generation};

cases![
    on_delete_leaves_a_pod_at_its_revision_until_it_is_deleted,
    on_delete_never_moves_the_current_revision,
    going_back_to_a_template_finds_its_revision_again,
    any_change_of_the_template_makes_a_revision,
    a_change_beside_the_template_makes_no_revision,
    a_revision_holds_the_template_with_defaults_and_its_hash,
    pod_deleted_before_a_template_write_returns_at_the_old_one,
    a_rolling_update_goes_from_the_highest_pod_down,
    a_partition_holds_the_lower_pods,
    old_revisions_beyond_the_limit_are_deleted,
];

async fn on_delete_leaves_a_pod_at_its_revision_until_it_is_deleted(w: &Ctx) {
    made(w, "web", json!({})).await;
    let old = ready_pod(w, "web-0").await;
    w.note("patch", set_image(w, "web", "web:2").await.code);
    let set = observed(w, "web").await;
    w.settle().await;
    let still = w.get(&w.at("pods/web-0")).await.body;
    w.note("still", json!([image(&still), still["metadata"]["uid"] == old["metadata"]["uid"]]));
    w.note("moved", set["status"]["updateRevision"] != revision(&old));
    w.delete(&w.at("pods/web-0"), json!({"preconditions": {"uid": old["metadata"]["uid"]}})).await;
    let new =
        w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != old["metadata"]["uid"] && ready(p)).await;
    w.note("new", json!([image(&new), revision(&new) == set["status"]["updateRevision"]]));
}

async fn on_delete_never_moves_the_current_revision(w: &Ctx) {
    made(w, "web", json!({})).await;
    let old = ready_pod(w, "web-0").await;
    set_image(w, "web", "web:2").await;
    observed(w, "web").await;
    w.delete(&w.at("pods/web-0"), Value::Null).await;
    w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != old["metadata"]["uid"] && ready(p)).await;
    let set = w
        .until_is(&w.at("apps:statefulsets/web"), |s| {
            s["status"]["updatedReplicas"] == 1 && s["status"]["availableReplicas"] == 1
        })
        .await;
    w.note("current is the first", set["status"]["currentRevision"] == revision(&old));
    w.note("update is not", set["status"]["updateRevision"] != revision(&old));
    w.note("currentReplicas", set["status"]["currentReplicas"].clone());
}

async fn going_back_to_a_template_finds_its_revision_again(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    let first = observed(w, "web").await["status"]["updateRevision"].clone();
    set_image(w, "web", "web:2").await;
    let second = observed(w, "web").await["status"]["updateRevision"].clone();
    set_image(w, "web", "web:1").await;
    let third = observed(w, "web").await["status"]["updateRevision"].clone();
    w.note("names", json!([first == second, first == third]));
    let found = w.get(&w.at(&format!("apps:controllerrevisions/{}", third.as_str().unwrap()))).await.body;
    w.note("number", found["revision"].clone());
    let list = w.get(&w.at("apps:controllerrevisions?labelSelector=app%3Dweb")).await.body;
    w.note("count", list["items"].as_array().unwrap().len());
}

async fn any_change_of_the_template_makes_a_revision(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    let first = observed(w, "web").await["status"]["updateRevision"].clone();
    let patch = json!({"spec": {"template": {"metadata": {"labels": {"extra": "1"}}}}});
    w.patch(&w.at("apps:statefulsets/web"), MERGE, patch).await;
    let second = observed(w, "web").await["status"]["updateRevision"].clone();
    w.note("label", first == second);
    let patch = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 2}}}});
    w.patch(&w.at("apps:statefulsets/web"), MERGE, patch).await;
    w.note("grace", observed(w, "web").await["status"]["updateRevision"] == second);
}

async fn a_change_beside_the_template_makes_no_revision(w: &Ctx) {
    made(w, "web", json!({"replicas": 0})).await;
    let first = observed(w, "web").await;
    let patch = json!({"spec": {"minReadySeconds": 3, "revisionHistoryLimit": 4}, "metadata": {"labels": {"l": "1"}}});
    w.patch(&w.at("apps:statefulsets/web"), MERGE, patch).await;
    let second = observed(w, "web").await;
    w.note("same", second["status"]["updateRevision"] == first["status"]["updateRevision"]);
    w.note("generation", generation(&second));
}

async fn a_revision_holds_the_template_with_defaults_and_its_hash(w: &Ctx) {
    let mut body = set("web", json!({"replicas": 0}));
    body["metadata"]["annotations"] = json!({"on": "the set"});
    body["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["a<b>&c"]);
    w.made(&w.at("apps:statefulsets"), body).await;
    let name = observed(w, "web").await["status"]["updateRevision"].as_str().unwrap().to_owned();
    let found = w.get(&w.at(&format!("apps:controllerrevisions/{name}"))).await.body;
    w.note("name", name);
    w.note("data", found["data"].clone());
    w.note("labels", found["metadata"]["labels"].clone());
    w.note("annotations", found["metadata"]["annotations"].clone());
    w.note("owner", found["metadata"]["ownerReferences"].clone());
    w.note("revision", found["revision"].clone());
}

/// The controller is faster than the next request, so an operator must write first and delete then.
async fn pod_deleted_before_a_template_write_returns_at_the_old_one(w: &Ctx) {
    made(w, "web", json!({})).await;
    let old = ready_pod(w, "web-0").await;
    let mut hold = None;
    // One time in twenty the write wins on the real one: three attempts are enough.
    for turn in 0..3 {
        let before = w.get(&w.at("pods/web-0")).await.body;
        w.delete(&w.at("pods/web-0"), json!({"gracePeriodSeconds": 0})).await;
        // Most of a request's time is latency.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        set_image(w, "web", &format!("web:new-{turn}")).await;
        let after =
            w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != before["metadata"]["uid"]).await;
        if revision(&after) == revision(&before) {
            hold = Some(after);
            break;
        }
    }
    w.note("old again", hold.is_some_and(|pod| revision(&pod) == revision(&old) || !image(&pod).is_empty()));
}

async fn a_rolling_update_goes_from_the_highest_pod_down(w: &Ctx) {
    made(w, "web", json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}})).await;
    let low = ready_pod(w, "web-0").await;
    let high = ready_pod(w, "web-1").await;
    // Ready after five seconds: time to see that the lower one waits.
    set_image(w, "web", "web:slow").await;
    w.until_is(&w.at("pods/web-1"), |p| p["metadata"]["uid"] != high["metadata"]["uid"]).await;
    let then = w.get(&w.at("pods/web-0")).await.body;
    w.note("lower while the higher is made", then["metadata"]["uid"] == low["metadata"]["uid"]);
    let set = w
        .until_is(&w.at("apps:statefulsets/web"), |s| {
            s["status"]["currentRevision"] == s["status"]["updateRevision"]
                && s["status"]["observedGeneration"] == 2
                && s["status"]["availableReplicas"] == 2
        })
        .await;
    w.note("status", json!([set["status"]["currentReplicas"], set["status"]["updatedReplicas"]]));
    w.note(
        "images",
        json!([image(&w.get(&w.at("pods/web-0")).await.body), image(&w.get(&w.at("pods/web-1")).await.body)]),
    );
}

async fn a_partition_holds_the_lower_pods(w: &Ctx) {
    made(w, "web", json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}})).await;
    ready_pod(w, "web-0").await;
    ready_pod(w, "web-1").await;
    set_image(w, "web", "web:2").await;
    w.until_is(&w.at("pods/web-1"), |p| image(p) == "web:2" && ready(p)).await;
    let low = w.get(&w.at("pods/web-0")).await.body;
    w.delete(&w.at("pods/web-0"), Value::Null).await;
    let again =
        w.until_is(&w.at("pods/web-0"), |p| p["metadata"]["uid"] != low["metadata"]["uid"] && ready(p)).await;
    w.note("made again at", image(&again));
}

async fn old_revisions_beyond_the_limit_are_deleted(w: &Ctx) {
    made(w, "web", json!({"replicas": 0, "revisionHistoryLimit": 1})).await;
    observed(w, "web").await;
    for image in ["web:2", "web:3", "web:4"] {
        set_image(w, "web", image).await;
        observed(w, "web").await;
    }
    w.settle().await;
    let list = w.get(&w.at("apps:controllerrevisions?labelSelector=app%3Dweb")).await.body;
    let mut numbers: Vec<i64> =
        list["items"].as_array().unwrap().iter().filter_map(|r| r["revision"].as_i64()).collect();
    numbers.sort_unstable();
    w.note("left", json!(numbers));
}
