//! POST.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::Ctx;

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

cases![
    a_second_object_of_the_same_name_is_refused,
    a_generated_name_has_five_more_characters,
    generate_name_has_to_be_a_valid_name,
    a_version_may_not_be_set_on_a_new_object,
    a_dry_run_stores_nothing_and_answers_with_a_whole_object,
    dry_run_and_real_write_reject_the_same,
    a_namespace_that_does_not_exist_is_not_found,
    a_body_of_another_namespace_is_refused,
    a_name_that_is_none_is_refused,
    an_object_without_a_name_is_refused,
    a_label_that_is_none_is_refused,
    create_ignores_server_owned_metadata,
    an_event_of_a_fixed_name_can_be_made_once,
    an_event_is_one_object_in_both_groups,
    a_lease_keeps_its_micro_times,
    an_unknown_field_is_dropped_with_a_warning,
    a_secret_keeps_text_as_base64,
    a_body_of_the_wrong_kind_is_refused,
    an_unknown_resource_is_not_found,
    a_post_to_a_name_is_not_allowed,
];

async fn a_second_object_of_the_same_name_is_refused(w: &Ctx) {
    w.made(&w.at("configmaps"), map("twice")).await;
    let second = w.post(&w.at("configmaps"), map("twice")).await;
    w.said("second", &second);
    w.note("details", second.body["details"].clone());
}

async fn a_generated_name_has_five_more_characters(w: &Ctx) {
    let mut body = map("");
    body["metadata"] = json!({"generateName": "gen-"});
    let made = w.made(&w.at("configmaps"), body).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    w.note("length", name.len());
    w.note("prefix", &name[..4]);
    w.note("generateName", made["metadata"]["generateName"].clone());
}

async fn generate_name_has_to_be_a_valid_name(w: &Ctx) {
    for (what, prefix) in [("dot", "gen."), ("capital", "Gen-"), ("dashes", "gen--")] {
        let mut body = map("");
        body["metadata"] = json!({"generateName": prefix});
        let answer = w.post(&w.at("configmaps?dryRun=All"), body).await;
        let cause = &answer.body["details"]["causes"][0];
        w.note(what, json!([answer.code, cause["field"], cause["message"]]));
    }
}

async fn a_version_may_not_be_set_on_a_new_object(w: &Ctx) {
    let mut body = map("versioned");
    body["metadata"]["resourceVersion"] = "17".into();
    w.said("create", &w.post(&w.at("configmaps"), body).await);
}

async fn a_dry_run_stores_nothing_and_answers_with_a_whole_object(w: &Ctx) {
    let answer = w.post(&w.at("configmaps?dryRun=All"), map("dry")).await;
    w.said("create", &answer);
    w.note("has a uid", answer.body["metadata"]["uid"].is_string());
    w.note("has a version", answer.body["metadata"]["resourceVersion"].is_string());
    w.said("get", &w.get(&w.at("configmaps/dry")).await);
}

async fn dry_run_and_real_write_reject_the_same(w: &Ctx) {
    w.made(&w.at("configmaps"), map("taken")).await;
    w.said("taken", &w.post(&w.at("configmaps?dryRun=All"), map("taken")).await);
    w.said("bad name", &w.post(&w.at("configmaps?dryRun=All"), map("Bad_Name")).await);
}

async fn a_namespace_that_does_not_exist_is_not_found(w: &Ctx) {
    w.said("create", &w.post("/api/v1/namespaces/nowhere-at-all/configmaps", map("x")).await);
}

async fn a_body_of_another_namespace_is_refused(w: &Ctx) {
    let mut body = map("elsewhere");
    body["metadata"]["namespace"] = "default".into();
    w.said("create", &w.post(&w.at("configmaps"), body).await);
}

async fn a_name_that_is_none_is_refused(w: &Ctx) {
    w.said("config map", &w.post(&w.at("configmaps"), map("Bad_Name")).await);
    let service = json!({"metadata": {"name": "1bad"}, "spec": {"clusterIP": "None"}});
    w.said("service", &w.post(&w.at("services"), service).await);
}

async fn an_object_without_a_name_is_refused(w: &Ctx) {
    let answer = w.post(&w.at("configmaps"), json!({"data": {}})).await;
    w.note("code", answer.code);
    w.note("reason", answer.body["reason"].clone());
    w.note("message", answer.body["message"].clone());
}

async fn a_label_that_is_none_is_refused(w: &Ctx) {
    let mut body = map("labelled");
    body["metadata"]["labels"] = json!({"hash": "v1:abc"});
    w.said("colon", &w.post(&w.at("configmaps"), body.clone()).await);
    body["metadata"]["labels"] = json!({"-bad": "x"});
    w.said("key", &w.post(&w.at("configmaps"), body).await);
}

async fn create_ignores_server_owned_metadata(w: &Ctx) {
    let mut body = map("stamped");
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    body["metadata"]["generation"] = 9.into();
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    let made = w.made(&w.at("configmaps"), body).await;
    let meta = &made["metadata"];
    w.note("uid kept", meta["uid"] == "00000000-0000-0000-0000-000000000000");
    w.note("time kept", meta["creationTimestamp"] == "2001-01-01T00:00:00Z");
    w.note("generation", meta["generation"].clone());
    w.note("deletion", meta["deletionTimestamp"].clone());
}

fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name}, "eventTime": "2026-01-02T03:04:05.123456Z", "action": "Roll", "reason": "RolloutStarted",
        "note": "it began", "type": "Normal", "reportingController": "windlass", "reportingInstance": "one",
        "regarding": {"kind": "ConfigMap", "name": "x", "apiVersion": "v1"},
    })
}

async fn an_event_of_a_fixed_name_can_be_made_once(w: &Ctx) {
    let mut body = event("fixed.1");
    body["regarding"]["namespace"] = w.ns.clone().into();
    w.said("first", &w.post(&w.at("events:events"), body.clone()).await);
    w.said("second", &w.post(&w.at("events:events"), body).await);
}

async fn an_event_is_one_object_in_both_groups(w: &Ctx) {
    let mut body = event("both.1");
    body["regarding"]["namespace"] = w.ns.clone().into();
    w.made(&w.at("events:events"), body).await;
    let core = w.get(&w.at("events/both.1")).await.body;
    for field in [
        "apiVersion",
        "message",
        "involvedObject",
        "reportingComponent",
        "eventTime",
        "firstTimestamp",
        "note",
    ] {
        w.note(field, core[field].clone());
    }
    let selected = w.get(&w.at("events?fieldSelector=involvedObject.name=x,reason=RolloutStarted")).await;
    w.note("selected", selected.body["items"].as_array().unwrap().len());
}

async fn a_lease_keeps_its_micro_times(w: &Ctx) {
    let mut body = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.1Z", "leaseTransitions": 0}});
    // Go accepts one format of micro time only, with six digits.
    w.said("one digit", &w.post(&w.at("lease:leases"), body.clone()).await);
    body["spec"]["renewTime"] = "2026-01-02T03:04:05.100000Z".into();
    w.note("spec", w.made(&w.at("lease:leases"), body).await["spec"].clone());
}

async fn an_unknown_field_is_dropped_with_a_warning(w: &Ctx) {
    let mut body = map("warned");
    body["dta"] = json!({"b": "2"});
    let answer = w.post(&w.at("configmaps"), body).await;
    w.note("code", answer.code);
    w.note("dropped", answer.body["dta"].is_null());
    w.note("warnings", answer.warnings.clone());
}

async fn a_secret_keeps_text_as_base64(w: &Ctx) {
    let body = json!({"metadata": {"name": "s"}, "stringData": {"token": "hello, you"}});
    let made = w.made(&w.at("secrets"), body).await;
    w.note("data", made["data"].clone());
    w.note("type", made["type"].clone());
    w.note("stringData", made["stringData"].clone());
}

async fn a_body_of_the_wrong_kind_is_refused(w: &Ctx) {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    w.coded("create", &w.post(&w.at("configmaps"), body).await);
}

async fn an_unknown_resource_is_not_found(w: &Ctx) {
    w.coded("create", &w.post(&w.at("gadgets"), json!({})).await);
    w.said("list", &w.get("/apis/nowhere.dev/v1/gadgets").await);
}

async fn a_post_to_a_name_is_not_allowed(w: &Ctx) {
    w.said("post", &w.post(&w.at("configmaps/x"), map("x")).await);
}
