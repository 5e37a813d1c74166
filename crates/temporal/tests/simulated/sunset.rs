//! Versions that nobody needs any more, and their return.

use chrono::TimeDelta;
use windlass_temporal::port::RoutingWrite;
use windlass_temporal_fake::{Fault, Settings, Write};

use crate::stage::{Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn drained_version_with_a_new_pinned_workflow_is_scaled_up() {
    let mut slow = spec("v1");
    slow["sunset"]["deleteDelaySeconds"] = 36_000.into();
    let (s, v1) = Stage::running(slow).await;
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    for (after, revived) in [(60, 1), (1800, 2)] {
        s.until("v1 has no pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 0).await;
        s.seconds(after).await;
        s.temporal.start(&deployment(), "again", Some(&v1), 0.0);
        s.until("v1 has its pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 2).await;
        assert_eq!(s.record(&v1)["state"], "Draining");
        assert_eq!(s.events("VersionRevived"), revived);
        s.temporal.end("again");
    }
    s.until("v1 has no pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 0).await;
}

#[tokio::test(start_paused = true)]
async fn version_that_temporal_never_reports_as_drained_is_retired() {
    let s = Stage::with(Settings { drainage: TimeDelta::days(99), ..Settings::default() });
    let mut slow = spec("v1");
    slow["sunset"]["deleteDelaySeconds"] = 3600.into();
    s.create(slow).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.seconds(3600).await;
    let replicas = |s: &Stage| s.deployment_of(&v1).unwrap()["spec"]["replicas"].as_i64().unwrap();
    assert_eq!(replicas(&s), 2, "a workflow runs there");
    s.temporal.end("long");
    s.seconds(14 * 60).await;
    assert_eq!(s.record(&v1)["state"], "Draining");
    assert_eq!(replicas(&s), 2, "Temporal may still report it");
    s.until("it has no pods", |s| replicas(s) == 0).await;
    assert_eq!(s.condition("Ready"), "True/WorkersReady");
    s.temporal.set_fault(Fault::Limiting);
    s.seconds(300).await;
    assert_eq!(replicas(&s), 0, "an outage does not restore it");
    s.temporal.set_fault(Fault::None);
    s.temporal.start(&deployment(), "pinned", Some(&v1), 0.0);
    s.until("it has pods for a pinned workflow", |s| replicas(s) == 2).await;
    s.temporal.end("pinned");
    s.seconds(16 * 60).await;
    assert_eq!(replicas(&s), 0);
    s.seconds(3700).await;
    assert!(s.deployment_of(&v1).is_none() && s.record(&v1).is_null(), "{:#}", s.record(&v1));
    assert!(s.temporal.writes().contains(&Write::DeleteVersion(v1)));
    assert_eq!(s.events("VersionScaledDown"), 2);
}

#[tokio::test(start_paused = true)]
async fn unused_version_is_kept_while_a_workflow_is_pinned_to_it() {
    let (s, _) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("v2 is listed", |s| s.record(&v2)["state"] == "Inactive").await;
    s.temporal.start(&deployment(), "pinned", Some(&v2), 0.0);
    s.set_image("v1").await;
    s.seconds(120).await;
    assert_eq!(s.deployment_of(&v2).unwrap()["spec"]["replicas"], 2);
    assert_eq!(s.record(&v2)["runningWorkflows"], 1);
    s.temporal.end("pinned");
    s.until("v2 goes", |s| s.record(&v2).is_null() && s.deployment_of(&v2).is_none()).await;
    assert!(s.temporal.writes().contains(&Write::DeleteVersion(v2)));
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn replicas_managed_by_an_autoscaler_are_never_written() {
    let mut scaled = spec("v1");
    scaled.as_object_mut().unwrap().remove("replicas");
    let (s, v1) = Stage::running(scaled).await;
    let patch = kube::api::Patch::Merge(serde_json::json!({"spec": {"replicas": 7}}));
    let name = format!("orders-{v1}");
    s.api("Deployment").patch(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    s.patch(serde_json::json!({"spec": {"maxSurge": 1}})).await;
    s.until("it is rendered", |s| s.deployments()[0]["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1)
        .await;
    s.seconds(120).await;
    assert_eq!(s.deployments()[0]["spec"]["replicas"], 7);
}

#[tokio::test(start_paused = true)]
async fn repeatedly_scaled_up_version_is_scaled_down_at_limited_rate() {
    let mut scaled = spec("v1");
    scaled.as_object_mut().unwrap().remove("replicas");
    scaled["sunset"] = serde_json::json!({"scaleDownDelaySeconds": 5, "deleteDelaySeconds": 1800});
    let (s, v1) = Stage::running(scaled).await;
    let deployments = s.api("Deployment");
    let name = format!("orders-{v1}");
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s.until("v1 has no pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 0).await;
    let mut zeros = 1;
    for second in 0.. {
        let Some(live) = s.deployment_of(&v1) else { break };
        assert!(second < 2_000, "it never goes");
        if live["spec"]["replicas"] == 0 {
            zeros += u32::from(second > 0);
            let up = kube::api::Patch::Merge(serde_json::json!({"spec": {"replicas": 1}}));
            let _ = deployments.patch(&name, &kube::api::PatchParams::default(), &up).await;
        }
        s.seconds(1).await;
    }
    assert!((3..=7).contains(&zeros), "scaled to zero {zeros} times in half an hour");
    assert_eq!((s.events("VersionScaledDown"), s.events("VersionDeleted")), (1, 1));
    s.until("it is forgotten", |s| s.record(&v1).is_null()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn deleted_deployment_is_recreated_without_a_rollout() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.api("Deployment").delete(&format!("orders-{v1}"), &kube::api::DeleteParams::default()).await.unwrap();
    s.until("it is there", |s| !s.deployments().is_empty()).await;
    s.until_current(&v1).await;
    assert_eq!(s.status()["history"].as_array().unwrap().len(), 1, "no rollout is needed for it");
}

#[tokio::test(start_paused = true)]
async fn deployment_deleted_with_its_revision_is_rebuilt_from_spec() {
    for is_paused in [false, true] {
        let (s, v1) = Stage::running(spec("v1")).await;
        s.patch(serde_json::json!({"spec": {"paused": is_paused}})).await;
        s.kill_operator();
        let name = format!("orders-{v1}");
        s.api("Deployment").delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        for revision in s.cluster.snapshot_of("shop", &["ControllerRevision"]) {
            let name = revision["metadata"]["name"].as_str().unwrap();
            s.api("ControllerRevision").delete(name, &kube::api::DeleteParams::default()).await.unwrap();
        }
        s.start_operator();
        s.until("it is there", |s| s.deployment_of(&v1).is_some()).await;
        assert_eq!(s.cluster.snapshot_of("shop", &["ControllerRevision"]).len(), 1, "and its revision");
        s.until_current(&v1).await;
        assert_eq!(s.status()["history"].as_array().unwrap().len(), 1, "no rollout is needed for it");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_without_a_record_are_kept_while_a_workflow_is_pinned() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    // Its pods cannot reach Temporal, so that nothing recreates the record.
    s.temporal.forget(&deployment(), &v1);
    s.until("it is not known there", |s| s.record(&v1)["state"] == "NotRegistered").await;
    s.seconds(120).await;
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    assert_eq!(s.record(&v1)["runningWorkflows"], 1);
    s.temporal.end("long");
    s.until("it goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn draining_version_reports_its_running_workflows() {
    let (s, v1) = Stage::running(spec("v1")).await;
    for id in ["a", "b", "c"] {
        s.temporal.start(&deployment(), id, None, 99.0);
    }
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.until("they are counted", |s| s.record(&v1)["runningWorkflows"] == 3).await;
    assert_eq!(s.record(&v1)["state"], "Draining");
    s.temporal.end("a");
    s.until("they are counted again", |s| s.record(&v1)["runningWorkflows"] == 2).await;
    for id in ["b", "c"] {
        s.temporal.end(id);
    }
    s.until("it has no pods, and no pollers are told of", |s| {
        s.deployment_of(&v1).is_none() && s.record(&v1)["pollers"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn version_records_of_foreign_workers_are_not_deleted() {
    let s = Stage::new();
    // The other client's workers have stopped for the night, and one version was never promoted.
    let theirs = ["drained", "never"].map(windlass_temporal::port::BuildId::new);
    for build in &theirs {
        s.temporal.poll(&deployment(), build, &["orders"], 1);
    }
    for build in [Some(theirs[0].clone()), None] {
        s.temporal.by_hand(&deployment(), &RoutingWrite::Current(build)).unwrap();
    }
    for build in &theirs {
        s.temporal.poll(&deployment(), build, &["orders"], 0);
    }
    let mut manual = spec("v1");
    manual["rollout"] = serde_json::json!({"strategy": "Manual"});
    s.create(manual).await;
    s.until("it waits for a promotion", |s| s.condition("UpToDate") == "Unknown/ReadyToPromote").await;
    s.seconds(600).await;
    assert_eq!(s.temporal.writes(), [], "nothing of it is ours");
    // Once Windlass is the manager, they are records without workers.
    s.patch(serde_json::json!({"spec": {"forcePromote": s.status()["requestedRolloutHash"]}})).await;
    s.until("they are forgotten", |s| theirs.iter().all(|build| s.record(build).is_null())).await;
    s.until_current(&s.target().await).await;
}

#[tokio::test(start_paused = true)]
async fn version_record_kept_by_foreign_pollers_needs_few_calls() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s.until("its workers are gone", |s| s.deployment_of(&v1).is_none()).await;
    s.temporal.poll(&deployment(), &v1, &["orders"], 1);
    s.seconds(1200).await;
    let (calls, describes) = (s.temporal.calls(), s.temporal.describes());
    s.seconds(600).await;
    let (calls, describes) = (s.temporal.calls() - calls, s.temporal.describes() - describes);
    assert!(describes <= 21 && calls <= describes + 20, "{describes} descriptions, {calls} calls in 10 min");
    // The same holds once they are gone.
    s.temporal.poll(&deployment(), &v1, &[], 0);
    s.until("it is forgotten", |s| s.record(&v1).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_managed_version_records_are_rarely_polled() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s.until("its workers are gone", |s| s.deployment_of(&v1).is_none()).await;
    s.temporal.manage(&deployment(), Some("another operator"));
    s.seconds(200).await;
    let (asked, calls) = (s.temporal.asked_to_delete(&v1).len(), s.temporal.calls());
    s.seconds(600).await;
    assert_eq!(s.temporal.asked_to_delete(&v1).len(), asked);
    assert!(s.temporal.calls() - calls <= 45, "{} calls in 10 min", s.temporal.calls() - calls);
}

#[tokio::test(start_paused = true)]
async fn version_with_uncountable_workflows_is_reported_as_kept() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.roll_to("v2").await;
    s.until_current(&s.target().await).await;
    s.temporal.set_fault(Fault::Uncounting);
    s.seconds(60).await;
    assert_eq!(s.message("Reconciling"), "", "it drains, and need not be counted");
    s.temporal.end("long");
    s.until("it is said", |s| s.message("Reconciling").contains("the visibility store is disabled")).await;
    assert!(s.message("Reconciling").contains(v1.as_str()), "{}", s.message("Reconciling"));
    assert_eq!(s.condition("Reconciling"), "False/Settled");
    let (calls, version) = (s.temporal.calls(), s.cluster.version());
    s.seconds(600).await;
    assert!(s.temporal.calls() - calls <= 100, "{} calls in 10 min", s.temporal.calls() - calls);
    assert_eq!(s.cluster.version(), version, "it is said once");
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    s.temporal.set_fault(Fault::None);
    s.until("v1 goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
    assert_eq!(s.message("Reconciling"), "");
    s.assert_no_orphans();
}
