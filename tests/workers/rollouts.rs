//! Rollouts with the shipped operator, real pods and a real Temporal. A workflow runs on every version all the time,
//! and each ends on the build that it started on.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, condition, message, version};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

async fn farm(name: &str) -> Result<Farm<'static>, Error> {
    Farm::new(Cluster::shared().await, server().await, OPERATOR, name).await
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    let old = spec.pointer_mut(field).unwrap_or_else(|| panic!("{field} is there"));
    *old = value;
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_workflow_runs_on_while_a_new_version_ramps_and_the_old_one_drains_and_goes()
-> Result<(), Error> {
    let farm = farm("story").await?;
    let mut spec = farm.spec("1");
    spec["rollout"]["gate"] = json!({"workflowType": "Gate", "timeoutSeconds": 60});
    spec["rollout"]["onFailure"] = json!("Rollback");
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;

    farm.set_image("2").await?;
    let ramps = async {
        let mut seen = Vec::new();
        loop {
            let status = farm.object().await.expect("it is there")["status"].clone();
            let percent = status["rampPercent"].as_i64().unwrap_or_default();
            if percent > 0 && seen.last() != Some(&percent) {
                seen.push(percent);
            }
            if status["currentBuildID"] != v1.as_str() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert_eq!(ramps.await, [5, 50], "no step is skipped");
    let v2 = farm.until_current().await?;
    farm.begin("on-v2").await?;
    farm.until("v1 drains", |seen| {
        version(seen, &v1).is_some_and(|v1| v1["state"] == "Draining" && v1["ready"] == 1)
    })
    .await?;

    assert_eq!(farm.end("on-v1").await?, v1, "it ends on the build that it began on");
    farm.until("v1 is gone", |seen| version(seen, &v1).is_none()).await?;
    assert_eq!(farm.deployments().await?.len(), 1, "its Deployment, too");

    farm.set_image("bad").await?;
    let seen = farm.until_reason("UpToDate", "RolledBack").await?;
    let status = &seen["status"];
    let told = serde_json::to_string(status)?;
    assert!(told.contains("was told to fail"), "the gate's own words: {status:#}");
    assert_eq!(status["currentBuildID"], v2.as_str());
    assert!(status["rampingBuildID"].is_null(), "{status:#}");
    assert_eq!(farm.end("on-v2").await?, v2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_fails_holds_until_a_good_version_is_wanted() -> Result<(), Error> {
    let farm = farm("held").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] =
        json!({"strategy": "AllAtOnce", "gate": {"workflowType": "Gate", "timeoutSeconds": 60}});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("bad").await?;
    let seen = farm.until_reason("UpToDate", "GateFailed").await?;
    assert!(message(&seen, "UpToDate").contains("was told to fail"), "{:#}", seen["status"]);
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    farm.set_image("2").await?;
    let new = farm.until_current().await?;
    assert_ne!(new, v1);
    farm.begin_on(&new).await?;
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_never_promotes_and_what_lives_takes_over_at_once() -> Result<(), Error> {
    let farm = farm("manual").await?;
    let spec = with(farm.spec("1"), "/rollout", json!({"strategy": "Manual"}));
    let spec = with(spec, "/sunset", json!({"scaleDownDelaySeconds": 600, "deleteDelaySeconds": 600}));
    farm.create(spec).await?;
    let promote = async |farm: &Farm<'_>| {
        let seen = farm.until_reason("UpToDate", "ReadyToPromote").await?;
        let wanted = seen["status"]["requestedRolloutHash"].clone();
        farm.patch(json!({"spec": {"forcePromote": wanted}})).await?;
        farm.until_current().await
    };
    let v1 = promote(&farm).await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    farm.until_reason("UpToDate", "ReadyToPromote").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let seen = farm.object().await?;
    assert_eq!(
        (condition(&seen, "UpToDate").1.as_str(), &seen["status"]["currentBuildID"]),
        ("ReadyToPromote", &json!(v1))
    );
    let v2 = promote(&farm).await?;
    assert_ne!(v1, v2);
    farm.begin("on-v2").await?;

    // Back, although the steps take an hour: a version with workers skips them.
    let slow = json!({"strategy": "Progressive", "steps": [{"percent": 5, "pauseSeconds": 3600}]});
    farm.patch(json!({"spec": {"rollout": slow}})).await?;
    farm.set_image("1").await?;
    assert_eq!(farm.until_current().await?, v1);
    assert_eq!((farm.end("on-v1").await?, farm.end("on-v2").await?), (v1, v2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_at_the_ramp_is_undone_and_a_new_target_takes_the_ramp_back() -> Result<(), Error> {
    let farm = farm("by-hand").await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    let steps = json!([{"percent": 30, "pauseSeconds": 3600}]);
    farm.patch(json!({"spec": {"rollout": {"steps": steps}}})).await?;
    farm.set_image("2").await?;
    let seen = farm.until("2 ramps", |seen| seen["status"]["rampPercent"] == 30).await?;
    let v2 = seen["status"]["rampingBuildID"].as_str().unwrap_or_default().to_owned();

    let manager = manager(&farm).await?;
    farm.person.ramp(&farm.deployment(), &v2, 80.0, &manager).await?;
    until_event(&farm, "RampRestored").await?;
    farm.until("the ramp is the plan's again", |seen| seen["status"]["rampPercent"] == 30).await?;

    farm.set_image("1").await?;
    assert_eq!(farm.until_current().await?, v1);
    let seen =
        farm.until("the ramp is taken back", |seen| seen["status"]["rampingBuildID"].is_null()).await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());

    // Another manager's deployment is not changed.
    farm.person.take_over(&farm.deployment(), "another operator").await?;
    farm.patch(json!({"spec": {"rollout": {"steps": [{"percent": 30, "pauseSeconds": 1}]}}})).await?;
    farm.set_image("3").await?;
    farm.until_reason("UpToDate", "OwnedByOther").await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let seen = farm.object().await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    assert!(seen["status"]["rampingBuildID"].is_null());
    farm.person.take_over(&farm.deployment(), &manager).await?;
    let new = farm.until_current().await?;
    assert_ne!(new, v1);
    farm.begin_on(&new).await?;
    farm.end_all().await?;
    Ok(())
}

/// The manager of the deployment.
async fn manager(farm: &Farm<'_>) -> Result<String, Error> {
    let port = crate::stage::client(&farm.server.address()).await;
    let name = windlass_temporal::port::DeploymentName::new(farm.deployment());
    let described = port.describe_deployment(&name).await?;
    Ok(described.manager.ok_or("nobody manages it")?.to_string())
}

async fn until_event(farm: &Farm<'_>, reason: &str) -> Result<(), Error> {
    for _ in 0..200 {
        let events =
            farm.place.api("events.k8s.io/v1", "Event").list(&kube::api::ListParams::default()).await?;
        if events.items.iter().any(|event| json!(event)["reason"] == reason) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("no event {reason}").into())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_again_and_again_loses_no_workflow_and_makes_no_version_twice()
-> Result<(), Error> {
    let mut farm = farm("killed").await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    let mut builds = BTreeSet::from([v1.clone()]);
    // At different moments between the writes.
    for wait_ms in [150, 450, 900, 1_300, 1_700, 2_300, 700, 3_100] {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        farm.kill_operator().await;
        farm.start_operator()?;
    }
    let v2 = farm.until_current().await?;
    builds.insert(v2.clone());
    farm.begin("on-v2").await?;
    let seen = farm.object().await?;
    let known: BTreeSet<String> = seen["status"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|version| version["buildID"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(known, builds);
    assert_eq!(farm.deployments().await?.len(), 2);
    assert_eq!((farm.end("on-v1").await?, farm.end("on-v2").await?), (v1, v2));
    Ok(())
}
