//! The contents of the workers' Deployments, and how rarely the operator asks Temporal to delete records.

use chrono::TimeDelta;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, RequestInfo};
use windlass_temporal_fake::{Fault, Settings};

use crate::credentials::put;
use crate::stage::{Stage, deployment, spec};

fn rolling(s: &Stage) -> Value {
    s.deployments()[0]["spec"]["strategy"]["rollingUpdate"].clone()
}

#[tokio::test(start_paused = true)]
async fn workers_update_by_a_quarter_unless_the_spec_sets_it() {
    let (s, v1) = Stage::running(spec("v1")).await;
    assert_eq!(rolling(&s), json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
    s.patch(json!({"spec": {"maxSurge": 3, "maxUnavailable": "10%"}})).await;
    s.until("it is written", |s| rolling(s) == json!({"maxSurge": 3, "maxUnavailable": "10%"})).await;
    s.until_current(&v1).await;
    assert_eq!(s.status()["history"].as_array().unwrap().len(), 1, "it is no rollout");
}

#[tokio::test(start_paused = true)]
async fn workers_get_only_their_own_secret() {
    let mut given = spec("v1");
    given["connection"] = json!({
        "address": "temporal:7233", "namespace": "orders",
        "apiKeySecret": {"name": "operators-key", "key": "k"},
        "tls": {"caSecret": "operators-ca", "certSecret": "operators-cert"},
        "workerSecret": "workers-own",
    });
    // A variable that a worker may not set.
    given["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "TEMPORAL_WORKER_BUILD_ID", "value": "another"}, {"name": "QUEUE", "value": "q"}]);
    let s = Stage::new();
    put(&s, "workers-own", json!({})).await;
    s.create(given).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let live = s.deployment_of(&v1).unwrap();
    let container = &live["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["env"],
        json!([
            {"name": "TEMPORAL_ADDRESS", "value": "temporal:7233"},
            {"name": "TEMPORAL_NAMESPACE", "value": "orders"},
            {"name": "TEMPORAL_DEPLOYMENT_NAME", "value": "shop/orders"},
            {"name": "TEMPORAL_WORKER_BUILD_ID", "value": v1.as_str()},
            {"name": "QUEUE", "value": "q"},
        ])
    );
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "workers-own"}}]));
    assert!(!live.to_string().contains("operators-"), "{live:#}");
}

#[tokio::test(start_paused = true)]
async fn version_deletion_is_requested_at_most_every_five_seconds() {
    // While it remembers pollers it refuses, and each request makes it re-check the drainage.
    let s = Stage::with(Settings { pollers: TimeDelta::seconds(60), ..Settings::default() });
    let mut quick = spec("v1");
    quick["sunset"] = json!({"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 0});
    s.create(quick).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.until("its workers are gone", |s| s.deployment_of(&v1).is_none()).await;
    // Each change of another field causes a reconcile.
    for replicas in 3..20 {
        s.patch(json!({"spec": {"replicas": replicas}})).await;
        s.seconds(1).await;
    }
    s.until("it is forgotten", |s| s.record(&v1).is_null()).await;
    let asked = s.temporal.asked_to_delete(&v1);
    assert!(asked.len() >= 3, "{asked:?}");
    let closest = asked.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(closest >= Some(TimeDelta::seconds(5)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_target_workers_are_recreated_during_a_ramp() {
    let mut slow = spec("v1");
    slow["rollout"]["steps"] = json!([{"percent": 50, "pauseSeconds": 3000}]);
    let (s, _) = Stage::running(slow).await;
    let v2 = s.roll_to("v2").await;
    s.until("half of the tasks go there", |s| s.status()["rampPercent"] == 50).await;
    s.api("Deployment").delete(&format!("orders-{v2}"), &DeleteParams::default()).await.unwrap();
    s.until("its workers are there again", |s| s.deployment_of(&v2).is_some()).await;
    s.patch(json!({"spec": {"replicas": 5, "maxSurge": 2}})).await;
    s.until("it has as many as are asked for", |s| {
        let live = s.deployment_of(&v2).unwrap_or_default();
        live["spec"]["replicas"] == 5 && live["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 2
    })
    .await;
    assert_eq!(
        (s.status()["rampPercent"].clone(), s.status()["history"].as_array().unwrap().len()),
        (json!(50), 1)
    );
    assert_eq!(s.ramps(), [100, 50], "nothing of the routing was touched for it");
}

#[tokio::test(start_paused = true)]
async fn faulty_workers_of_one_version_block_no_rollout() {
    let mut slow = spec("v1");
    slow["sunset"]["scaleDownDelaySeconds"] = 3600.into();
    let (s, v1) = Stage::running(slow).await;
    // An admission policy that freezes old objects.
    s.cluster.set_faults(Box::new(Frozen(format!("orders-{v1}"))));
    let v2 = s.roll_to("v2").await;
    s.patch(json!({"spec": {"replicas": 3}})).await;
    s.until_current(&v2).await;
    s.until("it is said", |s| s.events("ApplyFailed") == 1).await;
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    assert_eq!(s.deployment_of(&v2).unwrap()["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn no_revision_is_deleted_while_temporal_is_unreachable() {
    let mut none_kept = spec("v1");
    none_kept["revisionHistoryLimit"] = 0.into();
    none_kept["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 7200});
    let (s, v1) = Stage::running(none_kept).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.kill_operator();
    s.api("Deployment").delete(&format!("orders-{v1}"), &DeleteParams::default()).await.unwrap();
    s.temporal.set_fault(Fault::Down);
    s.start_operator();
    s.seconds(60).await;
    s.temporal.set_fault(Fault::None);
    s.until("its workers are there again", |s| s.deployment_of(&v1).is_some()).await;
    let revisions = s.cluster.snapshot_of("shop", &["ControllerRevision"]);
    assert_eq!(revisions.len(), 2, "those of the versions that live");
    s.temporal.end("long");
}

/// Admission that refuses every change of a Deployment.
struct Frozen(String);

impl FaultPlan for Frozen {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it =
            request.name == self.0 && request.resource == "deployments.apps" && request.verb == "patch";
        if is_it && request.subresource.is_empty() {
            Before::Fail(Failure::Forbidden("admission webhook denied the request: frozen".to_owned()))
        } else {
            Before::Pass
        }
    }
}
