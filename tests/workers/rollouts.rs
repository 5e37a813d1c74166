//! Rollouts with the shipped operator, real pods and a real Temporal. A workflow runs on every version all the time,
//! and each ends on the build that it started on.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::stage::{ramps, server};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, message, version};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

async fn farm(name: &str) -> Result<Farm<'static>, Error> {
    Farm::new(Cluster::shared().await, server().await, OPERATOR, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_workflow_continues_while_a_new_version_takes_over() -> Result<(), Error> {
    let farm = farm("story").await?;
    let mut spec = farm.spec("1");
    spec["rollout"]["gate"] = json!({"workflowType": "Gate", "timeoutSeconds": 60});
    spec["rollout"]["onFailure"] = json!("Rollback");
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;

    farm.set_image("2").await?;
    let seen = ramps(&farm, |status| status["currentBuildID"] != v1.as_str()).await?;
    assert_eq!(seen, [5, 50], "no step is skipped");
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
async fn gate_reads_its_input_from_a_secret() -> Result<(), Error> {
    let farm = farm("input").await?;
    let put = async |kind: &str, input: &str| {
        let _ = farm.place.kubectl(&["delete", kind, "smoke", "--ignore-not-found"]).await?;
        let words: &[&str] = if kind == "secret" { &["secret", "generic"] } else { &["configmap"] };
        let literal = format!("--from-literal=input={input}");
        farm.place.kubectl(&[&["create"], words, &["smoke", &literal]].concat()).await
    };
    let mut spec = farm.spec("1");
    let key = json!({"name": "smoke", "key": "input"});
    let gate =
        json!({"workflowType": "Gate", "timeoutSeconds": 60, "inputFrom": {"secretKeyRef": key.clone()}});
    spec["rollout"] = json!({"strategy": "AllAtOnce", "gate": gate});
    farm.create(spec).await?;
    let is_awaited =
        |seen: &Value| message(seen, "UpToDate").contains("Secret") && seen["status"]["plan"].is_object();
    let seen = farm.until("the Secret is missed", is_awaited).await?;
    assert!(message(&seen, "UpToDate").contains("/smoke does not exist"), "{:#}", seen["status"]);
    put("secret", r#"{"fail": "no stock, no sale", "token": "sesame"}"#).await?;
    let seen = farm.until_reason("UpToDate", "GateFailed").await?;
    assert!(message(&seen, "UpToDate").contains("no stock, no sale"), "the gate had the input");
    let told =
        farm.place.kubectl(&["get", "workerdeployments,events,controllerrevisions", "-o", "yaml"]).await?;
    assert!(told.contains("secretKeyRef") && !told.contains("sesame"), "{told}");

    put("secret", r#"{"order": 7}"#).await?;
    farm.windlass(&["retry", "wwd/orders"]).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    put("configmap", r#"{"fail": "sold out"}"#).await?;
    farm.patch(
        json!({"spec": {"rollout": {"gate": {"inputFrom": {"secretKeyRef": null, "configMapKeyRef": key}}}}}),
    )
    .await?;
    farm.set_image("2").await?;
    let seen = farm.until_reason("UpToDate", "GateFailed").await?;
    assert!(message(&seen, "UpToDate").contains("sold out"), "{:#}", seen["status"]);
    farm.end_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_killed_operator_loses_no_workflow() -> Result<(), Error> {
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
