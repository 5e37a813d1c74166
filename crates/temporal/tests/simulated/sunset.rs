//! Versions that nobody wants any more, and that come back.

use windlass_temporal::played::Write;

use crate::stage::{Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn a_drained_version_that_is_pinned_anew_gets_its_workers_back() {
    let mut slow = spec("v1");
    slow["sunset"]["deleteDelaySeconds"] = 3600.into();
    let (s, v1) = Stage::running(slow).await;
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s.until("v1 has no pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 0).await;
    s.seconds(60).await;
    s.temporal.start(&deployment(), "again", Some(&v1), 0.0);
    s.until("v1 has its pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 2).await;
    assert_eq!(s.record(&v1)["state"], "Draining");
    assert_eq!(s.events("VersionRevived"), 1);
    s.temporal.end("again");
    s.until("v1 has no pods", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_never_took_tasks_is_kept_while_a_workflow_is_pinned_to_it() {
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
async fn replicas_that_are_left_to_an_autoscaler_are_never_written() {
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
async fn a_deployment_that_somebody_deleted_is_made_again() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.api("Deployment").delete(&format!("orders-{v1}"), &kube::api::DeleteParams::default()).await.unwrap();
    s.until("it is there", |s| !s.deployments().is_empty()).await;
    s.until_current(&v1).await;
    assert_eq!(s.status()["history"].as_array().unwrap().len(), 1, "no rollout is needed for it");
}

#[tokio::test(start_paused = true)]
async fn workers_of_a_version_whose_record_somebody_deleted_stay_while_a_workflow_is_pinned_to_it() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    // Its pods do not get as far as Temporal just then, so that nothing brings the record back.
    s.temporal.forget(&deployment(), &v1);
    s.until("it is not known there", |s| s.record(&v1)["state"] == "NotRegistered").await;
    s.seconds(120).await;
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    assert_eq!(s.record(&v1)["runningWorkflows"], 1);
    s.temporal.end("long");
    s.until("it goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_version_that_drains_it_is_said_how_many_workflows_run() {
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
