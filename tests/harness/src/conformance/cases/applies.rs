//! Server-side apply.

use serde_json::json;

use super::{cases, sets, widget};
use crate::conformance::suite::{APPLY, Ctx, version};

cases![
    apply_creates_a_missing_object,
    an_apply_takes_away_what_its_manager_no_longer_names,
    apply_keeps_fields_of_others,
    an_apply_over_another_managers_field_conflicts_unless_forced,
    an_apply_without_a_manager_is_refused,
    an_equal_apply_is_no_write,
    an_apply_makes_a_missing_object_even_with_a_version,
    an_apply_merges_containers_by_name,
    forced_apply_keeps_fields_of_other_managers,
];

async fn apply_creates_a_missing_object(w: &Ctx) {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    let answer = w.patch(&w.at("configmaps/m?fieldManager=one"), APPLY, body).await;
    w.said("apply", &answer);
    w.note("data", answer.body["data"].clone());
    let status =
        json!({"apiVersion": "conformance.windlass.dev/v1", "kind": "Widget", "status": {"message": "m"}});
    w.said(
        "status of nothing",
        &w.patch(&w.at("conf:widgets/none/status?fieldManager=one"), APPLY, status).await,
    );
}

async fn an_apply_takes_away_what_its_manager_no_longer_names(w: &Ctx) {
    let body = |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": {"l": "1"}}, "data": data});
    let path = w.at("configmaps/m?fieldManager=one");
    w.patch(&path, APPLY, body(json!({"a": "1", "b": "1"}))).await;
    let answer = w.patch(&path, APPLY, body(json!({"a": "2"}))).await;
    w.note("data", answer.body["data"].clone());
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let answer = w.patch(&path, APPLY, bare).await;
    w.note("nothing named", json!([answer.code, answer.body["data"], answer.body["metadata"]["labels"]]));
}

async fn apply_keeps_fields_of_others(w: &Ctx) {
    w.made(&w.at("configmaps"), json!({"metadata": {"name": "m"}, "data": {"theirs": "1"}})).await;
    let path = w.at("configmaps/m?fieldManager=one");
    let body = |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    w.patch(&path, APPLY, body(json!({"mine": "1"}))).await;
    let answer = w.patch(&path, APPLY, body(json!({"other": "1"}))).await;
    w.note("data", answer.body["data"].clone());
}

async fn an_apply_over_another_managers_field_conflicts_unless_forced(w: &Ctx) {
    let body =
        |a| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": a}});
    w.patch(&w.at("configmaps/m?fieldManager=one"), APPLY, body("1")).await;
    w.coded("other value", &w.patch(&w.at("configmaps/m?fieldManager=two"), APPLY, body("2")).await);
    w.coded("same value", &w.patch(&w.at("configmaps/m?fieldManager=two"), APPLY, body("1")).await);
    let answer = w.patch(&w.at("configmaps/m?fieldManager=two&force=true"), APPLY, body("3")).await;
    w.note("forced", json!([answer.code, answer.body["data"]]));
}

async fn an_apply_without_a_manager_is_refused(w: &Ctx) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    w.coded("apply", &w.patch(&w.at("configmaps/m"), APPLY, body).await);
}

async fn an_equal_apply_is_no_write(w: &Ctx) {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    let path = w.at("configmaps/m?fieldManager=one");
    let first = w.patch(&path, APPLY, body.clone()).await;
    let second = w.patch(&path, APPLY, body).await;
    w.note("second", json!([second.code, version(&first.body) == version(&second.body)]));
}

async fn an_apply_makes_a_missing_object_even_with_a_version(w: &Ctx) {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "resourceVersion": "5"}});
    w.said("apply", &w.patch(&w.at("configmaps/m?fieldManager=one&force=true"), APPLY, body).await);
}

async fn an_apply_merges_containers_by_name(w: &Ctx) {
    sets::made(w, "web", json!({"replicas": 0})).await;
    let containers = json!([{"name": "main", "image": "web:7"}, {"name": "side", "image": "side:1"}]);
    let body = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {"spec": {"containers": containers}}}});
    let answer = w.patch(&w.at("apps:statefulsets/web?fieldManager=one&force=true"), APPLY, body).await;
    w.said("apply", &answer);
    let list = answer.body["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let brief: Vec<_> = list.iter().map(|c| json!([c["name"], c["image"]])).collect();
    w.note("containers", json!(brief));
}

async fn forced_apply_keeps_fields_of_other_managers(w: &Ctx) {
    widget::made(w, "one").await;
    let body =
        json!({"apiVersion": "conformance.windlass.dev/v1", "kind": "Widget", "spec": {"kind": "Round"}});
    let path = w.at("conf:widgets/one?fieldManager=one&force=true");
    w.patch(&path, APPLY, body.clone()).await;
    w.patch(&w.at("conf:widgets/one"), crate::conformance::suite::MERGE, json!({"spec": {"name": "hand"}}))
        .await;
    let answer = w.patch(&path, APPLY, body).await;
    w.note("spec", json!([answer.code, answer.body["spec"]["name"], answer.body["spec"]["kind"]]));
}
