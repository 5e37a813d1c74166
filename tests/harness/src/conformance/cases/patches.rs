//! PATCH and PUT.

use serde_json::{Value, json};

use super::{cases, sets, widget};
use crate::conformance::suite::{Ctx, JSON, MERGE, STRATEGIC, generation, version};

cases![
    a_strategic_patch_may_say_the_order_of_a_list,
    a_json_patch_that_replaces_a_stale_version_conflicts,
    a_json_patch_with_the_version_that_is_stored_is_applied,
    a_json_patch_that_changes_nothing_is_no_write,
    a_json_patch_whose_test_fails_is_unprocessable,
    json_patch_remove_of_a_missing_field_is_unprocessable,
    json_patch_of_a_whole_template_moves_the_generation,
    json_patch_equal_after_defaulting_moves_nothing,
    a_dry_run_of_a_patch_moves_the_generation_only_if_it_differs,
    a_merge_patch_with_a_stale_version_conflicts,
    a_merge_patch_deletes_by_null_and_keeps_what_it_leaves_out,
    a_merge_patch_of_a_wrong_uid_is_refused,
    a_strategic_patch_merges_containers_by_name,
    a_strategic_patch_of_a_custom_kind_is_an_unknown_format,
    a_strict_patch_of_a_misspelt_field_is_refused,
    patch_of_a_missing_object_is_not_found,
    a_put_with_a_stale_version_conflicts,
    put_without_a_version_is_rejected_by_custom_kinds_only,
    a_put_of_another_uid_conflicts,
    a_patch_of_the_generation_is_ignored,
    a_label_moves_the_version_and_not_the_generation,
    an_empty_patch_is_no_write,
    an_unknown_patch_type_is_an_unknown_format,
    a_patch_cannot_rename,
    managed_fields_can_be_cleared_permanently,
];

async fn map(w: &Ctx, name: &str) -> (String, Value) {
    let made = w.made(&w.at("configmaps"), json!({"metadata": {"name": name}, "data": {"a": "1"}})).await;
    (w.at(&format!("configmaps/{name}")), made)
}

fn stamped(object: &Value) -> Value {
    json!({"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]})
}

async fn a_json_patch_that_replaces_a_stale_version_conflicts(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    w.patch(&path, MERGE, json!({"data": {"a": "2"}})).await;
    let patch = json!([stamped(&old), {"op": "replace", "path": "/data", "value": {"a": "3"}}]);
    w.said("patch", &w.patch(&path, JSON, patch).await);
}

async fn a_json_patch_with_the_version_that_is_stored_is_applied(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    let patch = json!([stamped(&old), {"op": "replace", "path": "/data", "value": {"b": "3"}}]);
    let answer = w.patch(&path, JSON, patch).await;
    w.said("patch", &answer);
    w.note("data", answer.body["data"].clone());
    w.note("moved", version(&answer.body) > version(&old));
}

async fn a_json_patch_that_changes_nothing_is_no_write(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    let patch = json!([stamped(&old), {"op": "replace", "path": "/data", "value": {"a": "1"}}]);
    let answer = w.patch(&path, JSON, patch).await;
    w.said("patch", &answer);
    w.note("same version", version(&answer.body) == version(&old));
}

async fn a_json_patch_whose_test_fails_is_unprocessable(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let patch = json!([{"op": "test", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data"}]);
    let answer = w.patch(&path, JSON, patch).await;
    w.said("patch", &answer);
    w.note("details", answer.body["details"].clone());
}

async fn json_patch_remove_of_a_missing_field_is_unprocessable(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    w.said("remove", &w.patch(&path, JSON, json!([{"op": "remove", "path": "/data/zzz"}])).await);
    w.said(
        "replace",
        &w.patch(&path, JSON, json!([{"op": "replace", "path": "/data/zzz", "value": "1"}])).await,
    );
    w.said("add", &w.patch(&path, JSON, json!([{"op": "add", "path": "/nowhere/zzz", "value": "1"}])).await);
    w.coded("no patch", &w.patch(&path, JSON, json!({"data": {}})).await);
}

async fn json_patch_of_a_whole_template_moves_the_generation(w: &Ctx) {
    let set = sets::made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web");
    let set = w.until_is(&path, |s| s["status"]["observedGeneration"] == generation(&set)).await;
    let mut template = sets::template("web:2");
    template["metadata"]["annotations"] = json!({"x": "y"});
    let patch = json!([stamped(&set), {"op": "replace", "path": "/spec/template", "value": template}]);
    let answer = w.patch(&path, JSON, patch).await;
    w.said("patch", &answer);
    w.note("generations", json!([generation(&set), generation(&answer.body)]));
    w.note("template", answer.body["spec"]["template"].clone());
}

async fn json_patch_equal_after_defaulting_moves_nothing(w: &Ctx) {
    let set = sets::made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web");
    let set = w.until_is(&path, |s| s["status"]["observedGeneration"] == generation(&set)).await;
    let mut template = sets::template("web:1");
    // The server's defaults, and equivalent notations.
    template["spec"]["restartPolicy"] = "Always".into();
    template["spec"]["hostNetwork"] = false.into();
    template["spec"]["nodeSelector"] = json!({});
    template["spec"]["containers"][0]["command"] = json!([]);
    template["spec"]["containers"][0]["workingDir"] = "".into();
    template["spec"]["containers"][0]["stdin"] = Value::Null;
    let patch = json!([stamped(&set), {"op": "replace", "path": "/spec/template", "value": template}]);
    let answer = w.patch(&path, JSON, patch).await;
    w.said("patch", &answer);
    w.note("same version", version(&answer.body) == version(&set));
}

async fn a_dry_run_of_a_patch_moves_the_generation_only_if_it_differs(w: &Ctx) {
    let set = sets::made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web");
    let set = w.until_is(&path, |s| s["status"]["observedGeneration"] == generation(&set)).await;
    for (what, image) in [("equal", "web:1"), ("other", "web:2")] {
        let template = sets::template(image);
        let patch = json!([stamped(&set), {"op": "replace", "path": "/spec/template", "value": template}]);
        let answer = w.patch(&format!("{path}?dryRun=All"), JSON, patch).await;
        w.note(
            what,
            json!([
                answer.code,
                generation(&answer.body) - generation(&set),
                version(&answer.body) == version(&set)
            ]),
        );
    }
    let after = w.get(&path).await.body;
    w.note("stored as before", version(&after) == version(&set));
}

async fn a_merge_patch_with_a_stale_version_conflicts(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    w.patch(&path, MERGE, json!({"data": {"a": "2"}})).await;
    let patch =
        json!({"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"a": "3"}});
    w.said("patch", &w.patch(&path, MERGE, patch).await);
}

async fn a_merge_patch_deletes_by_null_and_keeps_what_it_leaves_out(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let answer = w.patch(&path, MERGE, json!({"data": {"b": "2", "c": null, "a": null}})).await;
    w.said("patch", &answer);
    w.note("data", answer.body["data"].clone());
    let answer = w.patch(&path, MERGE, json!({"data": {"b": null}})).await;
    w.note("all gone", answer.body["data"].clone());
}

async fn a_merge_patch_of_a_wrong_uid_is_refused(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    let patch = json!({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "data": {"a": "3"}});
    w.said("patch", &w.patch(&path, MERGE, patch).await);
}

async fn a_strategic_patch_merges_containers_by_name(w: &Ctx) {
    sets::made(w, "web", json!({"replicas": 0})).await;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:9"}, {"name": "side", "image": "side:1"}]}}}});
    let answer = w.patch(&w.at("apps:statefulsets/web"), STRATEGIC, patch).await;
    w.said("patch", &answer);
    w.note("containers", answer.body["spec"]["template"]["spec"]["containers"].clone());
}

async fn a_strategic_patch_of_a_custom_kind_is_an_unknown_format(w: &Ctx) {
    widget::made(w, "one").await;
    let patch = json!({"spec": {"replicas": 2}});
    w.said("patch", &w.patch(&w.at("conf:widgets/one"), STRATEGIC, patch).await);
}

async fn a_strict_patch_of_a_misspelt_field_is_refused(w: &Ctx) {
    let set = sets::made(w, "web", json!({"replicas": 0})).await;
    let path = w.at("apps:statefulsets/web?fieldValidation=Strict&dryRun=All");
    let mut template = sets::template("web:2");
    template["spec"]["containers"][0]["imgae"] = "x".into();
    let patch = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
    w.strictly("json patch", &w.patch(&path, JSON, patch).await);
    let patch = json!({"spec": {"templat": {}}});
    w.strictly("merge patch", &w.patch(&path, MERGE, patch).await);
    let mut body = set;
    body["spec"]["template"] = template;
    w.said("put", &w.put(&path, body).await);
}

async fn patch_of_a_missing_object_is_not_found(w: &Ctx) {
    w.said("patch", &w.patch(&w.at("configmaps/none"), MERGE, json!({})).await);
    w.said("custom", &w.patch(&w.at("conf:widgets/none"), MERGE, json!({})).await);
}

async fn a_put_with_a_stale_version_conflicts(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    w.patch(&path, MERGE, json!({"data": {"a": "2"}})).await;
    w.said("put", &w.put(&path, old).await);
}

async fn put_without_a_version_is_rejected_by_custom_kinds_only(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    w.said("config map", &w.put(&path, json!({"metadata": {"name": "m"}, "data": {"z": "1"}})).await);
    widget::made(w, "one").await;
    let body = widget::widget("one", json!({"kind": "Round"}));
    w.said("custom", &w.put(&w.at("conf:widgets/one"), body).await);
}

async fn a_put_of_another_uid_conflicts(w: &Ctx) {
    let (path, mut object) = map(w, "m").await;
    object["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    w.said("put", &w.put(&path, object).await);
}

async fn a_patch_of_the_generation_is_ignored(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let answer = w.patch(&w.at("conf:widgets/one"), MERGE, json!({"metadata": {"generation": 40}})).await;
    w.note("generation", generation(&answer.body));
    w.note("same version", version(&answer.body) == version(&made));
}

async fn a_label_moves_the_version_and_not_the_generation(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let answer = w.patch(&w.at("conf:widgets/one"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await;
    w.note("generation", generation(&answer.body));
    w.note("moved", version(&answer.body) > version(&made));
    let answer = w.patch(&w.at("conf:widgets/one"), MERGE, json!({"spec": {"replicas": 2}})).await;
    w.note("after a change of spec", generation(&answer.body));
}

async fn an_empty_patch_is_no_write(w: &Ctx) {
    let (path, old) = map(w, "m").await;
    for (kind, patch) in [(MERGE, json!({})), (STRATEGIC, json!({})), (JSON, json!([]))] {
        let answer = w.patch(&path, kind, patch).await;
        w.note(kind, json!([answer.code, version(&answer.body) == version(&old)]));
    }
}

async fn an_unknown_patch_type_is_an_unknown_format(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    w.said("patch", &w.patch(&path, "application/json", json!({})).await);
}

async fn a_patch_cannot_rename(w: &Ctx) {
    let (path, _) = map(w, "m").await;
    w.said("rename", &w.patch(&path, MERGE, json!({"metadata": {"name": "other"}})).await);
    w.said("move", &w.patch(&path, MERGE, json!({"metadata": {"namespace": "default"}})).await);
}

async fn a_strategic_patch_may_say_the_order_of_a_list(w: &Ctx) {
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port});
    let path = w.at("services/s");
    let order = |ports: &[u16]| -> Value { ports.iter().map(|port| json!({"port": port})).collect() };
    let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [port(1), port(2), port(3), port(4)]}});
    w.made(&w.at("services"), body).await;
    for (what, spec) in [
        (
            "instead",
            json!({"$setElementOrder/ports": order(&[9, 2]), "ports": [port(9), {"$patch": "delete", "port": 1}]}),
        ),
        ("around", json!({"$setElementOrder/ports": order(&[4, 9]), "ports": [port(9)]})),
        ("alone", json!({"$setElementOrder/ports": order(&[3, 2, 4, 9])})),
        ("new between", json!({"$setElementOrder/ports": order(&[2, 7, 3]), "ports": [port(7)]})),
    ] {
        let answer = w.patch(&path, STRATEGIC, json!({"spec": spec})).await;
        let ports = answer.body["spec"]["ports"].as_array().cloned().unwrap_or_default();
        w.note(what, ports.iter().map(|port| port["port"].clone()).collect::<Value>());
    }
}

async fn managed_fields_can_be_cleared_permanently(w: &Ctx) {
    let widget = super::widget::made(w, "one").await;
    let set = sets::made(w, "web", json!({"replicas": 1})).await;
    let paths = [w.at("conf:widgets/one"), w.at("apps:statefulsets/web")];
    for (path, old) in paths.iter().zip([widget, set]) {
        let path = path.as_str();
        let patch = json!([
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
        ]);
        let answer = w.patch(path, JSON, patch).await;
        w.note(
            "taken away",
            json!([answer.code, answer.body["metadata"]["managedFields"], answer.body["metadata"]["labels"]]),
        );
        w.note("same generation", generation(&answer.body) == generation(&old));
        let status = json!({"status": {"replicas": 1}});
        w.patch(&format!("{path}/status"), MERGE, status).await;
        w.patch(path, MERGE, json!({"spec": {"replicas": 2}})).await;
        let again = json!([{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]);
        let spec = |s: &Value| s["spec"]["replicas"] == 2;
        let changed = w.until_is(path, spec).await;
        w.note("later", changed["metadata"]["managedFields"].clone());
        if path.ends_with("/one") {
            let answer = w.patch(path, JSON, again).await;
            w.note("again", json!([answer.code, version(&answer.body) == version(&changed)]));
        }
    }
}
