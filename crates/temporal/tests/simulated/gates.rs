//! Gates.

use k8s_openapi::ByteString;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, RequestInfo};
use windlass_temporal::port::BuildId;
use windlass_temporal_fake::GateEnd;

use crate::stage::{NAMESPACE, Stage, spec};

fn gated(tag: &str, on_failure: &str) -> serde_json::Value {
    let mut spec = spec(tag);
    spec["rollout"]["gate"] = json!({"workflowType": "Check", "timeoutSeconds": 60});
    spec["rollout"]["onFailure"] = json!(on_failure);
    spec
}

#[tokio::test(start_paused = true)]
async fn failed_gate_holds_the_rollout_with_its_message_until_retry() {
    let s = Stage::new();
    s.create(gated("v1", "Hold")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let v2 = {
        s.patch(json!({"spec": {"unsafeCustomBuildID": "two"}})).await;
        s.temporal.gates_end(
            &windlass_temporal::port::BuildId::new("two"),
            GateEnd::Fails("no such table: orders".into()),
        );
        s.target().await
    };
    s.until("it has failed", |s| s.condition("UpToDate") == "False/GateFailed").await;
    assert!(s.message("UpToDate").contains("no such table: orders"), "{}", s.message("UpToDate"));
    s.seconds(120).await;
    assert_eq!(s.condition("Stalled"), "True/GateFailed");
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
    assert_eq!((s.temporal.gates(), s.events("GateFailed")), (2, 1), "one for each version");
    s.temporal.gates_end(&v2, GateEnd::Succeeds(chrono::TimeDelta::seconds(1)));
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/retry", &plan).await;
    s.until_current(&v2).await;
    assert_eq!(s.temporal.gates(), 3, "a new attempt is a workflow of its own");
}

#[tokio::test(start_paused = true)]
async fn failed_gate_with_rollback_policy_removes_its_version() {
    let s = Stage::new();
    s.create(gated("v1", "Rollback")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let bad = windlass_temporal::port::BuildId::new("bad");
    s.temporal.gates_end(&bad, GateEnd::Fails("no such table: orders".into()));
    s.patch(json!({"spec": {"unsafeCustomBuildID": "bad"}})).await;
    s.until("it is rolled back", |s| s.condition("UpToDate") == "False/RolledBack").await;
    assert!(s.message("UpToDate").contains("no such table: orders"), "{}", s.message("UpToDate"));
    let history = s.status()["history"].clone();
    assert_eq!(history.as_array().unwrap().last().unwrap()["reason"], "GateFailed");
    s.until("its workers and its record go", |s| s.record(&bad).is_null() && s.deployment_of(&bad).is_none())
        .await;
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
    assert_eq!(s.condition("UpToDate"), "False/RolledBack");
}

#[tokio::test(start_paused = true)]
async fn gate_runs_before_each_gated_step() {
    let s = Stage::new();
    let mut spec = gated("v1", "Hold");
    spec["rollout"]["steps"][1]["gate"] = json!(true);
    s.create(spec).await;
    s.until_current(&s.target().await).await;
    let before = s.temporal.gates();
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    assert_eq!(s.temporal.gates() - before, 2);
    assert_eq!(s.ramps(), [100, 5, 50, 100]);
}

#[tokio::test(start_paused = true)]
async fn gate_of_a_superseded_rollout_ends_and_its_version_is_deleted() {
    let s = Stage::new();
    s.create(gated("v1", "Hold")).await;
    s.until_current(&s.target().await).await;
    let v2 = s.roll_to("v2").await;
    s.temporal.gates_end(&v2, GateEnd::Never);
    s.until("the gate runs", |s| s.condition("UpToDate") == "Unknown/GateRunning").await;
    let v3 = s.roll_to("v3").await;
    s.until_current(&v3).await;
    s.until("v2 goes", |s| s.record(&v2).is_null() && s.deployment_of(&v2).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn pause_before_a_gate_does_not_consume_its_timeout() {
    let s = Stage::new();
    s.create(gated("v1", "Rollback")).await;
    s.until_current(&s.target().await).await;
    s.patch(json!({"spec": {"paused": true}})).await;
    let v2 = s.roll_to("v2").await;
    s.seconds(600).await;
    s.patch(json!({"spec": {"paused": false}})).await;
    s.until_current(&v2).await;
    // The same, with the pause before the gate starts.
    s.temporal.gates_end(&v2, GateEnd::Succeeds(chrono::TimeDelta::seconds(1)));
    let v3 = s.roll_to("v3").await;
    s.until("its gate is next", |s| {
        let status = s.status();
        let tasks = status["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().any(|task| task["type"] == "await-registered" && task["state"] != "Pending")
    })
    .await;
    s.patch(json!({"spec": {"paused": true}})).await;
    s.seconds(600).await;
    s.patch(json!({"spec": {"paused": false}})).await;
    s.until_current(&v3).await;
}

#[tokio::test(start_paused = true)]
async fn every_task_queue_is_gated_even_if_polled_later() {
    let s = Stage::new();
    s.create(gated("v1", "Hold")).await;
    s.until_current(&s.target().await).await;
    let before = s.temporal.gates();
    s.temporal.gates_end(&BuildId::new("two"), GateEnd::Succeeds(chrono::TimeDelta::seconds(20)));
    s.patch(json!({"spec": {"unsafeCustomBuildID": "two"}})).await;
    let v2 = s.target().await;
    s.until("the first gate runs", |s| s.temporal.gates() == before + 1).await;
    s.temporal.poll(&crate::stage::deployment(), &v2, &["a-queue-before-it"], 2);
    s.until_current(&v2).await;
    assert_eq!(s.temporal.gates(), before + 2);
    assert_eq!(s.temporal.gated_queues(&v2), ["a-queue-before-it", "orders"]);
}

#[tokio::test(start_paused = true)]
async fn gate_that_can_never_start_fails_after_its_timeout() {
    for (on_failure, condition) in [("Hold", "False/GateFailed"), ("Rollback", "False/RolledBack")] {
        let s = Stage::new();
        s.create(gated("v1", on_failure)).await;
        let v1 = s.target().await;
        s.until_current(&v1).await;
        let before = (s.temporal.gates(), s.temporal.asked_to_start());
        s.temporal.knows_no_queue("ordres");
        s.patch(json!({"spec": {"rollout": {"gate": {"taskQueues": ["ordres"]}}}})).await;
        s.set_image("v2").await;
        s.until("it says what keeps it", |s| s.message("UpToDate").contains("not present in the task queue"))
            .await;
        assert_eq!(s.condition("UpToDate"), "Unknown/GateRunning");
        // A pause takes nothing of its time.
        s.patch(json!({"spec": {"paused": true}})).await;
        s.seconds(300).await;
        s.patch(json!({"spec": {"paused": false}})).await;
        s.seconds(40).await;
        assert_eq!(s.condition("UpToDate"), "Unknown/GateRunning");
        s.seconds(60).await;
        assert_eq!(s.condition("UpToDate"), condition);
        let message = s.message("UpToDate");
        assert!(message.contains("ordres for 60 s") && message.contains("not present"), "{message}");
        assert_eq!((s.temporal.gates(), s.events("GateFailed")), (before.0, 1));
        let asked = s.temporal.asked_to_start() - before.1;
        assert!((5..=25).contains(&asked), "asked {asked} times");
        assert_eq!(s.status()["currentBuildID"], v1.as_str());
        s.patch(json!({"spec": {"rollout": {"gate": {"taskQueues": ["orders"]}}}})).await;
        let v3 = s.roll_to("v3").await;
        s.until_current(&v3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn temporal_outage_beyond_the_gate_timeout_fails_no_gate() {
    let s = Stage::new();
    s.create(gated("v1", "Rollback")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let v2 = s.roll_to("v2").await;
    s.until("its version is listed", |s| s.record(&v2)["state"] == "Inactive").await;
    s.temporal.set_fault(windlass_temporal_fake::Fault::Down);
    s.seconds(300).await;
    s.temporal.set_fault(windlass_temporal_fake::Fault::None);
    s.until_current(&v2).await;
}

/// Text that only the Secret and Temporal may have.
const TOKEN: &str = "tok-5f3a";

/// Creates the ConfigMap or Secret `smoke`, or replaces its data.
async fn put(s: &Stage, kind: &str, data: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(s.client(), NAMESPACE, &resource);
    let mut object = DynamicObject::new("smoke", &resource);
    object.data = json!({"data": data});
    let _ = api.delete("smoke", &DeleteParams::default()).await;
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A Secret's value.
fn encoded(text: &str) -> Value {
    json!({"input": ByteString(text.as_bytes().to_vec())})
}

/// A stage whose first version is current, with a gate whose input is that of `from`.
async fn with_input(from: Value) -> (Stage, BuildId) {
    let mut spec = gated("v1", "Rollback");
    spec["rollout"]["strategy"] = json!("AllAtOnce");
    let (s, v1) = Stage::running(spec).await;
    s.patch(json!({"spec": {"rollout": {"gate": {"inputFrom": from}}}})).await;
    (s, v1)
}

async fn until_said(s: &Stage, words: &str) {
    s.until(words, |s| s.message("UpToDate").contains(words)).await;
    assert_eq!(s.condition("UpToDate"), "Unknown/GateRunning");
}

/// Fails every read of a ConfigMap.
struct NoRead(Failure);

impl FaultPlan for NoRead {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it = request.resource == "configmaps" && request.verb == "get";
        if is_it { Before::Fail(self.0.clone()) } else { Before::Pass }
    }
}

/// Checks all objects: only the Secret has the token, in base64.
fn assert_token_is_hidden(s: &Stage) {
    let everything = s.cluster.snapshot();
    let with_token: Vec<_> = everything.iter().filter(|object| object.to_string().contains(TOKEN)).collect();
    assert!(with_token.is_empty(), "{with_token:#?}");
}

#[tokio::test(start_paused = true)]
async fn gate_input_is_read_from_a_secret_and_stored_nowhere() {
    let (s, _) = with_input(json!({"secretKeyRef": {"name": "smoke", "key": "input"}})).await;
    let v2 = s.roll_to("v2").await;
    until_said(
        &s,
        "spec.rollout.gate.inputFrom: Secret shop/smoke does not exist: create it with the key input",
    )
    .await;
    put(&s, "Secret", json!({})).await;
    until_said(&s, "Secret shop/smoke has no key input: add it").await;
    for wrong in [format!("\"{TOKEN}\""), format!("{{\"token\": {TOKEN}"), String::new()] {
        put(&s, "Secret", encoded(&wrong)).await;
        until_said(&s, "Secret shop/smoke has a key input that is not a JSON object: write one").await;
        s.seconds(10).await;
        assert_token_is_hidden(&s);
    }
    let input = json!({"token": TOKEN});
    put(&s, "Secret", encoded(&input.to_string())).await;
    s.until_current(&v2).await;
    assert_eq!(s.temporal.gate_inputs(&v2), [Some(input)]);
    let task =
        s.status()["plan"]["tasks"].as_array().unwrap().iter().find(|t| t["type"] == "run-gate").cloned();
    assert_eq!(
        task.unwrap()["params"]["inputFrom"],
        json!({"secretKeyRef": {"name": "smoke", "key": "input"}})
    );
    assert_token_is_hidden(&s);
}

#[tokio::test(start_paused = true)]
async fn each_gate_reads_its_input_from_a_config_map_again() {
    let (s, _) = with_input(json!({"configMapKeyRef": {"name": "smoke", "key": "input"}})).await;
    for (tag, order) in [("v2", 7), ("v3", 8)] {
        put(&s, "ConfigMap", json!({"input": json!({"order": order}).to_string()})).await;
        let build = s.roll_to(tag).await;
        s.until_current(&build).await;
        assert_eq!(s.temporal.gate_inputs(&build), [Some(json!({"order": order}))]);
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_gate_input_fails_the_gate_and_an_outage_does_not() {
    let (s, v1) = with_input(json!({"configMapKeyRef": {"name": "smoke", "key": "input"}})).await;
    put(&s, "ConfigMap", json!({"input": "{}"})).await;
    s.cluster.set_faults(Box::new(NoRead(Failure::Unavailable)));
    let v2 = s.roll_to("v2").await;
    until_said(&s, "spec.rollout.gate.inputFrom: ConfigMap shop/smoke cannot be read").await;
    s.seconds(90).await;
    assert_eq!(s.condition("UpToDate"), "Unknown/GateRunning");
    s.cluster.set_faults(Box::new(NoRead(Failure::Forbidden("no right".to_owned()))));
    let words =
        "ConfigMap shop/smoke may not be read by the operator: grant its role the verb get on configmaps";
    until_said(&s, words).await;
    s.until("it is rolled back", |s| s.condition("UpToDate") == "False/RolledBack").await;
    let message = s.message("UpToDate");
    assert!(message.contains("for 60 s: spec.rollout.gate.inputFrom: ConfigMap"), "{message}");
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
    assert_eq!(s.temporal.gate_inputs(&v2), []);
}
