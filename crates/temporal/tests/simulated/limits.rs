//! What is refused, and by what.

use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};
use windlass_temporal_fake::Settings;

use crate::stage::{Stage, spec};

#[tokio::test(start_paused = true)]
async fn version_limit_creates_and_evicts_no_version() {
    let mut few = spec("v1");
    few["maxVersions"] = json!(2);
    few["sunset"] = json!({"scaleDownDelaySeconds": 9000, "deleteDelaySeconds": 9000});
    let (s, _) = Stage::running(few).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.set_image("v3").await;
    s.until("it says so", |s| s.condition("UpToDate") == "False/VersionLimitReached").await;
    s.seconds(300).await;
    assert_eq!(s.names().len(), 2);
    assert_eq!(s.status()["currentBuildID"], v2.as_str());
    s.patch(json!({"spec": {"maxVersions": 3}})).await;
    s.until_current(&s.target().await).await;
}

#[tokio::test(start_paused = true)]
async fn version_beyond_the_temporal_limit_is_reported() {
    let s = Stage::with(Settings { versions: 1, ..Settings::default() });
    s.create(spec("v1")).await;
    s.until_current(&s.target().await).await;
    s.set_image("v2").await;
    s.until("it waits", |s| s.condition("UpToDate") == "Unknown/WaitingForPollers").await;
    s.until("it says so", |s| s.condition("UpToDate") == "False/VersionLimitReached").await;
}

#[tokio::test(start_paused = true)]
async fn version_missing_a_current_task_queue_gets_no_tasks() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.set_image("other").await;
    s.until("it says so", |s| s.condition("UpToDate") == "False/MissingTaskQueues").await;
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
}

#[tokio::test(start_paused = true)]
async fn workers_that_never_poll_or_never_run_stall_the_rollout() {
    for (tag, before, after) in [
        ("mute", "Unknown/WaitingForPollers", "False/VersionLimitReached"),
        ("broken", "Unknown/Applying", "False/Stalled"),
    ] {
        let s = Stage::new();
        s.create(spec("v1")).await;
        let v1 = s.target().await;
        s.until_current(&v1).await;
        s.set_image(tag).await;
        s.until("it waits", |s| s.condition("UpToDate") == before).await;
        s.until("it is stalled", |s| s.condition("UpToDate") == after).await;
        assert_eq!(s.status()["currentBuildID"], v1.as_str());
        s.set_image("v3").await;
        s.until_current(&s.target().await).await;
    }
}

fn creates_workers(request: &RequestInfo) -> bool {
    request.verb == "create" && request.resource == "deployments.apps"
}

/// A quota that is used up until a Deployment is deleted.
struct Quota {
    has_room: bool,
}

impl FaultPlan for Quota {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.verb == "delete" && request.resource == "deployments.apps" {
            self.has_room = true;
        }
        if !creates_workers(request) || self.has_room {
            return Before::Pass;
        }
        let used = "deployments.apps \"orders-x7k2p\" is forbidden: exceeded quota: few, requested: \
                    count/deployments.apps=1, used: count/deployments.apps=2, limited: count/deployments.apps=2";
        Before::Fail(Failure::Forbidden(used.to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_quota_is_freed_by_unneeded_versions() {
    let (s, v1) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.cluster.set_faults(Box::new(Quota { has_room: false }));
    s.set_image("v3").await;
    s.until("it says so", |s| s.message("UpToDate").contains("exceeded quota: few")).await;
    assert!(s.deployment_of(&v1).is_some());
    let v3 = s.target().await;
    s.until_current(&v3).await;
    assert_eq!(s.events("InvalidSpec"), 0, "the template is fine");
    s.assert_no_orphans();
}

/// An API server that answers so to each dry run of a Deployment.
struct DryRuns(Failure);

impl FaultPlan for DryRuns {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if creates_workers(request) && request.dry_run {
            return Before::Fail(self.0.clone());
        }
        Before::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn undecided_dry_run_is_reported_and_holds_only_its_rollout() {
    for (failure, condition, words) in [
        (Failure::Forbidden("a policy says no".to_owned()), "False/InvalidSpec", "a policy says no"),
        (Failure::Internal, "Unknown/Applying", "could not check whether the API server accepts"),
    ] {
        let (s, v1) = Stage::running(spec("v1")).await;
        let v2 = s.roll_to("v2").await;
        s.until_current(&v2).await;
        s.cluster.set_faults(Box::new(DryRuns(failure.clone())));
        s.set_image("v3").await;
        s.until("it says so", |s| s.condition("UpToDate") == condition).await;
        assert!(s.message("UpToDate").contains(words), "{failure:?}: {}", s.message("UpToDate"));
        s.until("v1 goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
        assert_eq!(s.status()["history"].as_array().unwrap().len(), 2, "{failure:?}: no rollout began");
        s.cluster.set_faults(Box::new(NoFaults));
        let v3 = s.target().await;
        s.until_current(&v3).await;
        s.assert_no_orphans();
    }
}

#[tokio::test(start_paused = true)]
async fn version_with_live_workers_takes_over_without_dry_run() {
    let mut slow = spec("v1");
    slow["sunset"] = json!({"scaleDownDelaySeconds": 9000, "deleteDelaySeconds": 9000});
    let (s, v1) = Stage::running(slow).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.cluster.set_faults(Box::new(DryRuns(Failure::Internal)));
    s.set_image("v1").await;
    s.until_current(&v1).await;
}

/// A ramp with this many steps.
fn steps(count: u8) -> Value {
    (1..=count).map(|percent| json!({"percent": percent})).collect()
}

#[tokio::test(start_paused = true)]
async fn invalid_specs_are_rejected_with_a_message() {
    let s = Stage::new();
    let key = json!({"name": "smoke", "key": "input"});
    let (source, two) = (json!({"secretKeyRef": key}), json!({"secretKeyRef": key, "configMapKeyRef": key}));
    let gate = |mut gate: Value, from: &Value| {
        (gate["workflowType"], gate["inputFrom"]) = (json!("Check"), from.clone());
        gate
    };
    let cases: &[(&str, Value, &str)] = &[
        ("/rollout/steps", json!([{"percent": 50}, {"percent": 5}]), "have to ascend"),
        ("/rollout/steps", json!([{"percent": 5}, {"percent": 5}]), "have to ascend"),
        ("/rollout/steps", json!([{"percent": 100}]), "percent"),
        ("/rollout/steps", json!([{"percent": 0}]), "percent"),
        ("/rollout/steps", json!([{"percent": 5, "pauseSeconds": -1}]), "pauseSeconds"),
        ("/rollout/steps", steps(21), "must have at most 20 items"),
        ("/rollout/strategy", json!("Slowly"), "strategy"),
        ("/rollout/onFailure", json!("Ignore"), "onFailure"),
        ("/rollout/gate", json!({"timeoutSeconds": 5}), "workflowType"),
        ("/rollout/gate", json!({"workflowType": "Check", "timeoutSeconds": 0}), "timeoutSeconds"),
        ("/rollout/gate", gate(json!({"input": {}}), &source), "has both input and inputFrom"),
        ("/rollout/gate", gate(json!({}), &json!({})), "needs either configMapKeyRef or secretKeyRef"),
        ("/rollout/gate", gate(json!({}), &two), "needs either configMapKeyRef or secretKeyRef"),
        ("/rollout/gate", gate(json!({}), &json!({"secretKeyRef": {"name": "smoke"}})), "key"),
        ("/sunset", json!({"scaleDownDelaySeconds": -1}), "scaleDownDelaySeconds"),
        ("/maxVersions", json!(0), "maxVersions"),
        ("/deletionPolicy", json!("Orphan"), "deletionPolicy"),
        ("/connection/address", json!(""), "address"),
        ("/connection/address", json!("temporal"), "a host and a port"),
        ("/connection/address", json!("http://temporal:7233"), "a host and a port"),
        ("/connection/address", json!("temporal:7233/path"), "a host and a port"),
        ("/connection/address", json!("temporal:"), "a host and a port"),
        ("/rollout/steps", json!([{"percent": 5, "gate": true}]), "there is no spec.rollout.gate"),
        ("/rollout", json!({"strategy": "Progressive"}), "needs spec.rollout.steps"),
        ("/unsafeCustomBuildID", json!("-x"), "at most 63"),
        ("/unsafeCustomBuildID", json!("x".repeat(64)), "at most 63"),
        ("/deploymentName", json!("a.b"), "dots or colons"),
        ("/maxSurge", json!("much"), "percentage"),
        ("/maxUnavailable", json!(-1), "percentage"),
        ("/template/spec/containers", json!([]), "containers is empty"),
        ("/replicas", json!(-1), "replicas"),
    ];
    for (at, value, sentence) in cases {
        let mut spec = spec("v1");
        let (above, field) = at.rsplit_once('/').unwrap();
        spec.pointer_mut(above).unwrap()[field] = value.clone();
        let error = s.try_create(spec).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{at} {value}: {error}");
    }
    let mut both = spec("v1");
    (both["maxSurge"], both["maxUnavailable"]) = (json!(0), json!("0%"));
    assert!(s.try_create(both).await.unwrap_err().to_string().contains("both 0"));
    for address in ["[::1]:7233", "127.0.0.1:7233", "temporal-frontend.temporal.svc:7233"] {
        let mut at = spec("v1");
        (at["connection"]["address"], at["replicas"]) = (json!(address), json!(-1));
        let error = s.try_create(at).await.unwrap_err().to_string();
        assert!(error.contains("replicas") && !error.contains("a host and a port"), "{address}: {error}");
    }
    let mut most = spec("v1");
    most["rollout"]["steps"] = steps(20);
    s.create(most).await;
    let renamed = s.try_patch(json!({"spec": {"deploymentName": "other"}})).await.unwrap_err().to_string();
    assert!(renamed.contains("cannot be changed"), "{renamed}");
    let moved =
        s.try_patch(json!({"spec": {"connection": {"namespace": "other"}}})).await.unwrap_err().to_string();
    assert!(moved.contains("cannot be changed"), "{moved}");
}

#[tokio::test(start_paused = true)]
async fn samples_are_stored_as_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers.yaml");
    let samples: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let s = Stage::new();
    let mut names = Vec::new();
    for sample in samples {
        let name = sample["metadata"]["name"].as_str().unwrap().to_owned();
        let params = kube::api::PostParams::default();
        let object = serde_json::from_value(sample.clone()).unwrap();
        let stored = json!(s.api("WorkerDeployment").create(&params, &object).await.unwrap());
        // The server would have dropped a field that the definition lacks.
        for (field, from) in sample["spec"].as_object().unwrap() {
            let mut both = stored["spec"][field].clone();
            assert_eq!(
                merged(&mut both, from),
                stored["spec"][field],
                "{name}: {field} is stored as it is written"
            );
        }
        names.push(name);
    }
    assert_eq!(names, ["orders", "invoices", "reports"]);
}

/// Merges `from` into `into`.
fn merged(into: &mut Value, from: &Value) -> Value {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                let merged = merged(into.entry(key.clone()).or_insert(Value::Null), value);
                into.insert(key.clone(), merged);
            }
            Value::Object(into.clone())
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).map(|(into, from)| merged(into, from)).collect()
        }
        (_, from) => from.clone(),
    }
}
