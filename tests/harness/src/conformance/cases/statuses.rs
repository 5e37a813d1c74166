//! The subresources status and scale.

use serde_json::{Value, json};

use super::{cases, sets, widget};
use crate::conformance::suite::{Ctx, JSON, MERGE, generation, version};

cases![
    a_status_in_a_new_object_is_dropped,
    a_spec_write_leaves_the_status_and_a_status_write_the_spec,
    a_status_write_moves_no_generation,
    a_status_is_replaced_whole_by_a_guarded_json_patch,
    a_first_status_is_added_by_a_json_patch,
    an_equal_status_is_no_write,
    a_stale_status_write_conflicts,
    a_wrong_uid_in_a_status_patch_of_a_custom_kind_is_ignored,
    labels_in_a_status_write_of_a_custom_kind_are_ignored,
    labels_in_a_status_write_of_a_pod_are_stored,
    json_patch_keeps_nulls_of_a_free_form_status_field,
    a_status_of_a_wrong_type_is_refused,
    a_kind_without_a_status_has_no_such_subresource,
    a_scale_is_read_and_written_by_number,
    a_scale_of_a_custom_kind_follows_its_paths,
    a_stale_scale_conflicts,
    a_negative_scale_is_refused,
];

async fn a_status_in_a_new_object_is_dropped(w: &Ctx) {
    let mut body = widget::widget("one", json!({"kind": "Square"}));
    body["status"] = json!({"message": "early"});
    w.note("custom", w.made(&w.at("conf:widgets"), body).await["status"].clone());
    let mut set = sets::set("web", json!({"replicas": 0}));
    set["status"] = json!({"replicas": 5});
    w.note("set", w.made(&w.at("apps:statefulsets"), set).await["status"].clone());
}

async fn a_spec_write_leaves_the_status_and_a_status_write_the_spec(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one");
    let both = json!({"spec": {"replicas": 3}, "status": {"message": "m"}});
    let answer = w.patch(&path, MERGE, both.clone()).await;
    w.note("main", json!([answer.body["spec"]["replicas"], answer.body["status"]]));
    let both = json!({"spec": {"replicas": 4}, "status": {"message": "m"}});
    let answer = w.patch(&format!("{path}/status"), MERGE, both).await;
    w.note("status", json!([answer.body["spec"]["replicas"], answer.body["status"]]));
}

async fn a_status_write_moves_no_generation(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    let answer = w.patch(&path, MERGE, json!({"status": {"message": "m"}})).await;
    w.note("generation", generation(&answer.body) - generation(&made));
    w.note("version moved", version(&answer.body) > version(&made));
}

fn whole(object: &Value, op: &str, status: Value) -> Value {
    json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
        {"op": op, "path": "/status", "value": status},
    ])
}

async fn a_status_is_replaced_whole_by_a_guarded_json_patch(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    let first = w.patch(&path, MERGE, json!({"status": {"message": "m", "replicas": 2}})).await.body;
    let second = w.patch(&path, JSON, whole(&first, "replace", json!({"message": "n"}))).await;
    w.said("second", &second);
    w.note("status", second.body["status"].clone());
    let stale = w.patch(&path, JSON, whole(&first, "replace", json!({"message": "o"}))).await;
    w.said("stale", &stale);
}

/// A `replace` of a status that is not there adds it, against RFC 6902.
async fn a_first_status_is_added_by_a_json_patch(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    let first = w.patch(&path, JSON, whole(&made, "replace", json!({"message": "n"}))).await;
    w.note("replace", json!([first.code, first.body["status"]]));
    let second = widget::made(w, "two").await;
    let path = w.at("conf:widgets/two/status");
    let added = w.patch(&path, JSON, whole(&second, "add", json!({"message": "n"}))).await;
    w.note("add", json!([added.code, added.body["status"]]));
}

async fn an_equal_status_is_no_write(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    let first = w.patch(&path, MERGE, json!({"status": {"message": "m"}})).await.body;
    let again = w.patch(&path, JSON, whole(&first, "replace", json!({"message": "m"}))).await;
    w.note("same version", version(&again.body) == version(&first));
    let again = w.put(&path, first.clone()).await;
    w.note("same version by put", version(&again.body) == version(&first));
}

async fn a_stale_status_write_conflicts(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    w.patch(&path, MERGE, json!({"status": {"message": "m"}})).await;
    let stamp = json!({"resourceVersion": made["metadata"]["resourceVersion"]});
    w.said("merge", &w.patch(&path, MERGE, json!({"metadata": stamp, "status": {"message": "n"}})).await);
    let mut body = made;
    body["status"] = json!({"message": "z"});
    w.said("put", &w.put(&path, body).await);
}

async fn a_wrong_uid_in_a_status_patch_of_a_custom_kind_is_ignored(w: &Ctx) {
    widget::made(w, "one").await;
    let patch =
        json!({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "status": {"message": "m"}});
    let answer = w.patch(&w.at("conf:widgets/one/status"), MERGE, patch).await;
    w.said("patch", &answer);
    w.note("status", answer.body["status"].clone());
}

async fn labels_in_a_status_write_of_a_custom_kind_are_ignored(w: &Ctx) {
    widget::made(w, "one").await;
    let patch =
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x.dev/y"]}, "status": {"message": "m"}});
    let answer = w.patch(&w.at("conf:widgets/one/status"), MERGE, patch).await;
    w.note("labels", answer.body["metadata"]["labels"].clone());
    w.note("finalizers", answer.body["metadata"]["finalizers"].clone());
}

async fn labels_in_a_status_write_of_a_pod_are_stored(w: &Ctx) {
    let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1"}]});
    w.made(&w.at("pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "status": {"message": "m"}});
    let answer = w.patch(&w.at("pods/p/status"), MERGE, patch).await;
    w.said("patch", &answer);
    w.note("labels", answer.body["metadata"]["labels"].clone());
    w.note("message", answer.body["status"]["message"].clone());
}

async fn json_patch_keeps_nulls_of_a_free_form_status_field(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one/status");
    let task = json!({"a": null, "list": [{"b": null}], "c": {"d": null}});
    let answer = w.patch(&path, MERGE, json!({"status": {"task": task}})).await;
    w.note("merge", answer.body["status"]["task"].clone());
    let answer =
        w.patch(&path, JSON, json!([{"op": "replace", "path": "/status", "value": {"task": task}}])).await;
    w.note("json", answer.body["status"]["task"].clone());
}

async fn a_status_of_a_wrong_type_is_refused(w: &Ctx) {
    widget::made(w, "one").await;
    let patch = json!({"status": {"replicas": "many"}});
    w.said("patch", &w.patch(&w.at("conf:widgets/one/status"), MERGE, patch).await);
}

async fn a_kind_without_a_status_has_no_such_subresource(w: &Ctx) {
    w.made(&w.at("configmaps"), json!({"metadata": {"name": "m"}})).await;
    w.said("get", &w.get(&w.at("configmaps/m/status")).await);
}

async fn a_scale_is_read_and_written_by_number(w: &Ctx) {
    sets::made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web/scale");
    let scale = w.get(&path).await.body;
    w.note("kind", json!([scale["apiVersion"], scale["kind"], scale["spec"], scale["status"]]));
    let answer = w.patch(&path, MERGE, json!({"spec": {"replicas": 2}})).await;
    w.note("patched", json!([answer.code, answer.body["spec"]]));
    let set = w.get(&w.at("apps:statefulsets/web")).await.body;
    w.note("set", json!([set["spec"]["replicas"], generation(&set)]));
    let mut body = w.get(&path).await.body;
    body["spec"]["replicas"] = 0.into();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let answer = w.put(&path, body).await;
    w.note("put", json!([answer.code, answer.body["spec"]]));
}

async fn a_scale_of_a_custom_kind_follows_its_paths(w: &Ctx) {
    widget::made(w, "one").await;
    let status = json!({"status": {"replicas": 1, "selector": "a=b"}});
    w.patch(&w.at("conf:widgets/one/status"), MERGE, status).await;
    let path = w.at("conf:widgets/one/scale");
    let answer = w.patch(&path, MERGE, json!({"spec": {"replicas": 7}})).await;
    w.said("patch", &answer);
    w.note("scale", json!([answer.body["spec"], answer.body["status"]]));
    let object = w.get(&w.at("conf:widgets/one")).await.body;
    w.note("object", json!([object["spec"]["replicas"], generation(&object)]));
    w.coded("beyond a rule", &w.patch(&path, MERGE, json!({"spec": {"replicas": 70}})).await);
}

async fn a_stale_scale_conflicts(w: &Ctx) {
    let made = widget::made(w, "one").await;
    w.patch(&w.at("conf:widgets/one"), MERGE, json!({"spec": {"replicas": 3}})).await;
    let stamp = json!({"resourceVersion": made["metadata"]["resourceVersion"]});
    let patch = json!({"metadata": stamp, "spec": {"replicas": 4}});
    w.said("custom", &w.patch(&w.at("conf:widgets/one/scale"), MERGE, patch).await);
}

async fn a_negative_scale_is_refused(w: &Ctx) {
    sets::made(w, "web", json!({"replicas": 0})).await;
    widget::made(w, "one").await;
    let patch = json!({"spec": {"replicas": -1}});
    w.said("set", &w.patch(&w.at("apps:statefulsets/web/scale"), MERGE, patch.clone()).await);
    w.said("custom", &w.patch(&w.at("conf:widgets/one/scale"), MERGE, patch).await);
}
