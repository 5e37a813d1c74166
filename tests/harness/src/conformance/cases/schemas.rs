//! The schema of a CRD.

use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::suite::{Ctx, MERGE, generation, version};

cases![
    defaults_are_filled_in_and_shown,
    unknown_fields_are_pruned_and_strict_writes_of_them_refused,
    free_form_fields_keep_what_they_are_given,
    a_required_field_is_asked_for,
    a_value_outside_its_enum_is_refused,
    numbers_have_bounds,
    texts_have_bounds_and_patterns,
    types_are_checked,
    lists_have_bounds_and_sets_no_duplicates,
    maps_of_parts_have_unique_keys_and_default_fields,
    an_int_or_string_takes_both_and_nothing_else,
    a_null_takes_the_default_or_is_dropped_or_kept,
    a_rule_refuses_with_its_sentence,
    a_rule_over_two_fields_is_held_at_creation_and_update,
    a_transition_rule_is_held_at_updates_only,
    transition_rule_skips_added_and_removed_fields,
    a_rule_may_look_at_the_name,
    rules_are_not_run_over_an_object_that_is_wrong_in_other_ways,
    a_stored_value_that_became_invalid_bars_only_its_own_change,
    a_put_that_leaves_out_a_default_moves_nothing,
    a_body_without_a_kind_is_refused,
    several_validation_errors_are_reported_at_once,
];

async fn post(w: &Ctx, name: &str, spec: Value) -> crate::conformance::suite::Answer {
    w.post(&w.at("conf:widgets"), widget::widget(name, spec)).await
}

async fn defaults_are_filled_in_and_shown(w: &Ctx) {
    w.note("spec", post(w, "one", json!({"kind": "Round"})).await.body["spec"].clone());
}

async fn unknown_fields_are_pruned_and_strict_writes_of_them_refused(w: &Ctx) {
    let spec = json!({"kind": "Round", "colour": "red", "deep": {"outer": 1}});
    let strict =
        w.post(&w.at("conf:widgets?fieldValidation=Strict"), widget::widget("one", spec.clone())).await;
    w.said("strict", &strict);
    let answer = post(w, "one", spec).await;
    w.note("spec", answer.body["spec"].clone());
    w.note("warnings", answer.warnings.clone());
    let strict = w
        .patch(&w.at("conf:widgets/one?fieldValidation=Strict"), MERGE, json!({"spec": {"colour": "red"}}))
        .await;
    w.strictly("strict patch", &strict);
}

async fn free_form_fields_keep_what_they_are_given(w: &Ctx) {
    let raw = json!({"known": "x", "other": {"a": [1, null, {"b": ""}]}, "empty": {}, "none": null});
    w.note("raw", post(w, "one", json!({"kind": "Round", "raw": raw})).await.body["spec"]["raw"].clone());
    w.said("known of a wrong type", &post(w, "two", json!({"kind": "Round", "raw": {"known": 1}})).await);
}

async fn a_required_field_is_asked_for(w: &Ctx) {
    w.said("kind", &post(w, "one", json!({})).await);
    let body =
        json!({"apiVersion": "conformance.windlass.dev/v1", "kind": "Widget", "metadata": {"name": "two"}});
    w.said("spec", &w.post(&w.at("conf:widgets"), body).await);
}

async fn a_value_outside_its_enum_is_refused(w: &Ctx) {
    w.said("create", &post(w, "one", json!({"kind": "Triangle"})).await);
}

async fn numbers_have_bounds(w: &Ctx) {
    w.said("below", &post(w, "one", json!({"kind": "Round", "replicas": -1})).await);
    w.said("above", &post(w, "one", json!({"kind": "Round", "replicas": 101, "limit": 200})).await);
    w.coded("float", &post(w, "one", json!({"kind": "Round", "replicas": 1.5})).await);
}

async fn texts_have_bounds_and_patterns(w: &Ctx) {
    w.said("long", &post(w, "one", json!({"kind": "Round", "name": "abcdefghijklm"})).await);
    w.said("pattern", &post(w, "one", json!({"kind": "Round", "name": "ABC"})).await);
}

async fn types_are_checked(w: &Ctx) {
    w.said("number", &post(w, "one", json!({"kind": "Round", "replicas": "1"})).await);
    w.said("object", &post(w, "one", json!({"kind": "Round", "deep": []})).await);
    w.said("text", &post(w, "one", json!({"kind": "Round", "name": 5})).await);
}

async fn lists_have_bounds_and_sets_no_duplicates(w: &Ctx) {
    w.said("many", &post(w, "one", json!({"kind": "Round", "tags": ["a", "b", "c", "d"]})).await);
    w.said("twice", &post(w, "one", json!({"kind": "Round", "tags": ["a", "a"]})).await);
}

async fn maps_of_parts_have_unique_keys_and_default_fields(w: &Ctx) {
    let parts = json!([{"name": "a"}, {"name": "b", "size": 1}]);
    w.note(
        "parts",
        post(w, "one", json!({"kind": "Round", "parts": parts})).await.body["spec"]["parts"].clone(),
    );
    let parts = json!([{"name": "a"}, {"name": "a", "size": 1}]);
    w.said("twice", &post(w, "two", json!({"kind": "Round", "parts": parts})).await);
    w.said("no key", &post(w, "two", json!({"kind": "Round", "parts": [{"size": 1}]})).await);
}

async fn an_int_or_string_takes_both_and_nothing_else(w: &Ctx) {
    for (index, share) in [json!(3), json!("30%")].into_iter().enumerate() {
        let name = format!("w{index}");
        w.note(
            "share",
            post(w, &name, json!({"kind": "Round", "share": share})).await.body["spec"]["share"].clone(),
        );
    }
    w.coded("bool", &post(w, "one", json!({"kind": "Round", "share": true})).await);
    w.said("zero", &post(w, "one", json!({"kind": "Round", "share": 0})).await);
    w.said("101%", &post(w, "one", json!({"kind": "Round", "share": "101%"})).await);
}

async fn a_null_takes_the_default_or_is_dropped_or_kept(w: &Ctx) {
    w.note(
        "with a default",
        post(w, "one", json!({"kind": "Round", "replicas": null})).await.body["spec"].clone(),
    );
    w.note("nullable", post(w, "two", json!({"kind": "Round", "maybe": null})).await.body["spec"].clone());
    w.note("neither", post(w, "three", json!({"kind": "Round", "name": null})).await.body["spec"].clone());
}

async fn a_rule_refuses_with_its_sentence(w: &Ctx) {
    let answer = post(w, "one", json!({"kind": "Round", "replicas": 60})).await;
    w.coded("create", &answer);
    let message = answer.body["message"].as_str().unwrap();
    w.note("says so", message.ends_with("replicas may not exceed limit"));
    w.note("field", answer.body["details"]["causes"][0]["field"].clone());
}

async fn a_rule_over_two_fields_is_held_at_creation_and_update(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one");
    w.coded("replicas", &w.patch(&path, MERGE, json!({"spec": {"replicas": 51}})).await);
    w.coded("limit", &w.patch(&path, MERGE, json!({"spec": {"limit": 0}})).await);
    w.coded("both", &w.patch(&path, MERGE, json!({"spec": {"limit": 60, "replicas": 60}})).await);
}

async fn a_transition_rule_is_held_at_updates_only(w: &Ctx) {
    w.coded("create", &post(w, "one", json!({"kind": "Round", "fixed": "a"})).await);
    let path = w.at("conf:widgets/one");
    w.said("change", &w.patch(&path, MERGE, json!({"spec": {"fixed": "b"}})).await);
    w.coded("another field", &w.patch(&path, MERGE, json!({"spec": {"replicas": 2}})).await);
}

async fn transition_rule_skips_added_and_removed_fields(w: &Ctx) {
    widget::made(w, "one").await;
    let path = w.at("conf:widgets/one");
    let answer = w.patch(&path, MERGE, json!({"spec": {"fixed": "b"}})).await;
    w.coded("comes", &answer);
    w.note(
        "by the rule above",
        answer.body["message"].as_str().unwrap().contains("fixed may not come or go"),
    );
    w.note("causes", answer.body["details"]["causes"].as_array().map_or(0, Vec::len));
}

async fn a_rule_may_look_at_the_name(w: &Ctx) {
    let answer = post(w, "a-name-that-is-too-long-for-it", json!({"kind": "Round"})).await;
    w.coded("create", &answer);
    w.note(
        "says so",
        answer.body["message"].as_str().unwrap().ends_with("the name may have at most 20 characters"),
    );
}

async fn rules_are_not_run_over_an_object_that_is_wrong_in_other_ways(w: &Ctx) {
    w.said("create", &post(w, "one", json!({"kind": "Triangle", "replicas": 60})).await);
}

async fn a_stored_value_that_became_invalid_bars_only_its_own_change(w: &Ctx) {
    // A kind of its own, whose enum is narrowed after an object was stored.
    let plural = format!("gears{}", w.ns.replace('-', ""));
    let name = format!("{plural}.conformance.windlass.dev");
    let mut definition = widget::definition();
    definition["metadata"]["name"] = name.clone().into();
    let kind = format!("Gear{}", w.ns.replace('-', ""));
    definition["spec"]["names"] = json!({"plural": plural, "singular": plural, "kind": kind});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    w.made(definitions, definition.clone()).await;
    let gears = w.at(&format!("conf:{plural}"));
    w.until("the gears", async || (w.get(&gears).await.code == 200).then_some(())).await;
    w.settle().await;
    let mut body = widget::widget("one", json!({"kind": "Round"}));
    body["kind"] = kind.into();
    w.made(&gears, body).await;
    let enumeration = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/kind/enum";
    let patch = json!([{"op": "replace", "path": enumeration, "value": ["Square", "Oval"]}]);
    let answer = w.patch(&format!("{definitions}/{name}"), crate::conformance::suite::JSON, patch).await;
    w.coded("narrowed", &answer);
    let one = format!("{gears}/one");
    w.until("the new schema", async || {
        (w.patch(&format!("{one}?dryRun=All"), MERGE, json!({"spec": {"kind": "Oval"}})).await.code == 200)
            .then_some(())
    })
    .await;
    w.coded("label", &w.patch(&one, MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await);
    w.coded("status", &w.patch(&format!("{one}/status"), MERGE, json!({"status": {"message": "m"}})).await);
    w.coded("scale", &w.patch(&format!("{one}/scale"), MERGE, json!({"spec": {"replicas": 2}})).await);
    w.coded("another field", &w.patch(&one, MERGE, json!({"spec": {"replicas": 3}})).await);
    w.coded("itself", &w.patch(&one, MERGE, json!({"spec": {"kind": "Circle"}})).await);
    w.delete(&format!("{definitions}/{name}"), Value::Null).await;
    w.until_gone(&format!("{definitions}/{name}")).await;
    // It is no longer served a moment later.
    w.until("the gears' end", async || (w.get(&gears).await.code != 200).then_some(())).await;
    w.coded("after the definition is gone", &w.get(&gears).await);
}

async fn a_put_that_leaves_out_a_default_moves_nothing(w: &Ctx) {
    let made = widget::made(w, "one").await;
    let mut body = widget::widget("one", json!({"kind": "Square"}));
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    let answer = w.put(&w.at("conf:widgets/one"), body).await;
    w.said("put", &answer);
    w.note("same", json!([version(&answer.body) == version(&made), generation(&answer.body)]));
}

async fn a_body_without_a_kind_is_refused(w: &Ctx) {
    w.coded(
        "create",
        &w.post(&w.at("conf:widgets"), json!({"metadata": {"name": "x"}, "spec": {"kind": "Round"}})).await,
    );
}

async fn several_validation_errors_are_reported_at_once(w: &Ctx) {
    let answer = post(w, "one", json!({"kind": "Triangle", "replicas": "x", "name": "UPPER"})).await;
    w.note("code", answer.code);
    let mut fields: Vec<String> = answer.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{} {}", c["reason"].as_str().unwrap(), c["field"].as_str().unwrap_or("none")))
        .collect();
    fields.sort();
    w.note("causes", json!(fields));
}
