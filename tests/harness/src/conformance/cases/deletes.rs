//! DELETE.

use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::suite::{Ctx, JSON, MERGE, generation};

cases![
    delete_returns_a_status_and_for_a_pod_the_object,
    a_delete_with_a_wrong_uid_conflicts,
    a_delete_with_a_stale_version_conflicts,
    a_delete_with_the_right_preconditions_is_done,
    delete_of_a_missing_object_is_not_found,
    a_dry_run_of_a_delete_deletes_nothing,
    a_finalizer_holds_an_object_and_the_last_one_lets_it_go,
    a_held_objects_generation_moves_when_it_is_deleted,
    a_held_object_takes_no_new_finalizer,
    a_held_object_can_still_be_changed,
    a_second_delete_of_a_held_object_changes_nothing,
    a_deletion_time_cannot_be_written,
    a_collection_is_deleted_by_selector,
    a_namespace_is_emptied_and_takes_nothing_new_meanwhile,
    a_bound_pod_has_grace_and_an_unbound_one_none,
    a_pod_is_deleted_at_once_by_force,
    an_object_made_again_has_another_uid,
];

async fn map(w: &Ctx, name: &str) -> (String, Value) {
    let made = w.made(&w.at("configmaps"), json!({"metadata": {"name": name}, "data": {"a": "1"}})).await;
    (w.at(&format!("configmaps/{name}")), made)
}

fn unbound_pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1"}]}})
}

async fn delete_returns_a_status_and_for_a_pod_the_object(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let answer = w.delete(&path, Value::Null).await;
    w.note(
        "map",
        json!([
            answer.code,
            answer.body["kind"],
            answer.body["status"],
            answer.body["details"]["name"],
            answer.body["details"]["kind"]
        ]),
    );
    w.made(&w.at("pods"), unbound_pod("p")).await;
    let answer = w.delete(&w.at("pods/p"), Value::Null).await;
    w.note("pod", json!([answer.code, answer.body["kind"], answer.body["metadata"]["name"]]));
    widget::made(w, "one").await;
    let answer = w.delete(&w.at("conf:widgets/one"), Value::Null).await;
    w.note(
        "custom",
        json!([answer.code, answer.body["kind"], answer.body["status"], answer.body["details"]["group"]]),
    );
}

async fn a_delete_with_a_wrong_uid_conflicts(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let options = json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}});
    w.said("delete", &w.delete(&path, options).await);
    w.said("get", &w.get(&path).await);
}

async fn a_delete_with_a_stale_version_conflicts(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    w.patch(&path, MERGE, json!({"data": {"a": "2"}})).await;
    let options = json!({"preconditions": {"resourceVersion": old["metadata"]["resourceVersion"]}});
    w.coded("delete", &w.delete(&path, options).await);
    w.said("get", &w.get(&path).await);
}

async fn a_delete_with_the_right_preconditions_is_done(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {
        "uid": old["metadata"]["uid"], "resourceVersion": old["metadata"]["resourceVersion"]}});
    w.said("delete", &w.delete(&path, options).await);
    w.said("get", &w.get(&path).await);
}

async fn delete_of_a_missing_object_is_not_found(w: &Ctx) {
    w.said("delete", &w.delete(&w.at("configmaps/none"), Value::Null).await);
    let options = json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}});
    w.said("with a uid", &w.delete(&w.at("pods/none"), options).await);
}

async fn a_dry_run_of_a_delete_deletes_nothing(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    w.said("delete", &w.delete(&format!("{path}?dryRun=All"), Value::Null).await);
    w.said("get", &w.get(&path).await);
}

async fn held(w: &Ctx, name: &str) -> (String, Value) {
    let mut body = widget::widget(name, json!({"kind": "Square"}));
    body["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    let made = w.made(&w.at("conf:widgets"), body).await;
    (w.at(&format!("conf:widgets/{name}")), made)
}

async fn a_finalizer_holds_an_object_and_the_last_one_lets_it_go(w: &Ctx) {
    let (path, _) = held(w, "one").await;
    let answer = w.delete(&path, Value::Null).await;
    w.note(
        "delete",
        json!([
            answer.code,
            answer.body["kind"],
            answer.body["metadata"]["deletionTimestamp"].is_string(),
            answer.body["metadata"]["deletionGracePeriodSeconds"],
            answer.body["metadata"]["finalizers"]
        ]),
    );
    let answer = w.patch(&path, JSON, json!([{"op": "remove", "path": "/metadata/finalizers"}])).await;
    w.note("last patch", json!([answer.code, answer.body["metadata"]["finalizers"]]));
    w.said("get", &w.get(&path).await);
}

async fn a_held_objects_generation_moves_when_it_is_deleted(w: &Ctx) {
    let (path, made) = held(w, "one").await;
    let answer = w.delete(&path, Value::Null).await;
    w.note("generations", json!([generation(&made), generation(&answer.body)]));
}

async fn a_held_object_takes_no_new_finalizer(w: &Ctx) {
    let (path, _) = held(w, "one").await;
    w.delete(&path, Value::Null).await;
    let patch = json!({"metadata": {"finalizers": ["windlass.dev/hold", "windlass.dev/more"]}});
    w.said("patch", &w.patch(&path, MERGE, patch).await);
}

async fn a_held_object_can_still_be_changed(w: &Ctx) {
    let (path, _) = held(w, "one").await;
    w.delete(&path, Value::Null).await;
    let answer = w.patch(&path, MERGE, json!({"spec": {"replicas": 9}})).await;
    w.note("spec", json!([answer.code, answer.body["spec"]["replicas"], generation(&answer.body)]));
    let answer = w.patch(&format!("{path}/status"), MERGE, json!({"status": {"message": "going"}})).await;
    w.note("status", json!([answer.code, answer.body["status"]["message"]]));
}

async fn a_second_delete_of_a_held_object_changes_nothing(w: &Ctx) {
    let (path, _) = held(w, "one").await;
    let first = w.delete(&path, Value::Null).await;
    let second = w.delete(&path, Value::Null).await;
    w.note(
        "second",
        json!([
            second.code,
            second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
        ]),
    );
}

async fn a_deletion_time_cannot_be_written(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let patch = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let answer = w.patch(&path, MERGE, patch).await;
    w.note("patch", json!([answer.code, answer.body["metadata"]["deletionTimestamp"]]));
}

async fn a_collection_is_deleted_by_selector(w: &Ctx) {
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let body = json!({"metadata": {"name": name, "labels": {"l": label}}});
        w.made(&w.at("configmaps"), body).await;
    }
    let answer = w.delete(&w.at("configmaps?labelSelector=l%3Dx"), Value::Null).await;
    w.note("answer", json!([answer.code, answer.body["kind"]]));
    let left = w.get(&w.at("configmaps?labelSelector=l")).await.body;
    let names: Vec<&Value> =
        left["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    w.note("left", json!(names));
}

async fn a_namespace_is_emptied_and_takes_nothing_new_meanwhile(w: &Ctx) {
    let name = format!("{}-inner", w.ns);
    let path = format!("/api/v1/namespaces/{name}");
    let made = w.made("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    w.note("finalizers", made["spec"]["finalizers"].clone());
    w.note("phase", made["status"]["phase"].clone());
    let held = json!({"metadata": {"name": "m", "finalizers": ["windlass.dev/hold"]}});
    w.made(&format!("{path}/configmaps"), held).await;
    let answer = w.delete(&path, Value::Null).await;
    w.note("delete", json!([answer.code, answer.body["kind"], answer.body["status"]["phase"]]));
    w.until_is(&format!("{path}/configmaps/m"), |m| m["metadata"]["deletionTimestamp"].is_string()).await;
    let new = w.post(&format!("{path}/configmaps"), json!({"metadata": {"name": "n"}})).await;
    w.said("new", &new);
    let patch = json!({"metadata": {"finalizers": null}});
    w.patch(&format!("{path}/configmaps/m"), MERGE, patch).await;
    w.until_gone(&path).await;
}

async fn a_bound_pod_has_grace_and_an_unbound_one_none(w: &Ctx) {
    w.made(&w.at("pods"), unbound_pod("free")).await;
    w.delete(&w.at("pods/free"), Value::Null).await;
    w.coded("unbound", &w.get(&w.at("pods/free")).await);
    let mut bound = unbound_pod("bound");
    bound["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    bound["spec"]["nodeName"] = "played-0".into();
    bound["spec"]["terminationGracePeriodSeconds"] = 7.into();
    w.made(&w.at("pods"), bound).await;
    let answer = w.delete(&w.at("pods/bound"), Value::Null).await;
    w.note(
        "bound",
        json!([
            answer.code,
            answer.body["metadata"]["deletionGracePeriodSeconds"],
            answer.body["metadata"]["deletionTimestamp"].is_string()
        ]),
    );
    w.patch(&w.at("pods/bound"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    w.until_gone(&w.at("pods/bound")).await;
}

async fn a_pod_is_deleted_at_once_by_force(w: &Ctx) {
    let mut bound = unbound_pod("bound");
    bound["spec"]["nodeName"] = "played-0".into();
    let made = w.made(&w.at("pods"), bound).await;
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}});
    let answer = w.delete(&w.at("pods/bound"), options).await;
    w.note("delete", json!([answer.code, answer.body["kind"]]));
    w.coded("get", &w.get(&w.at("pods/bound")).await);
}

async fn an_object_made_again_has_another_uid(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    w.delete(&path, Value::Null).await;
    let (_, new) = map(w, "m").await;
    w.note("same uid", old["metadata"]["uid"] == new["metadata"]["uid"]);
    let options = json!({"preconditions": {"uid": old["metadata"]["uid"]}});
    w.said("delete of the old", &w.delete(&path, options).await);
}
