//! Several pools of workers under one version: each polls task queues of its own.

use serde_json::{Value, json};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, NAME, version};

use crate::stage::server;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// A pool whose workers poll another task queue.
fn reports(farm: &Farm<'_>, tag: &str) -> Value {
    let mut template = farm.spec(tag)["template"].clone();
    template["spec"]["containers"][0]["env"][0]["value"] = format!("reports-{}", farm.queue()).into();
    json!({"name": "reports", "replicas": 1, "template": template})
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_share_a_version_from_rollout_to_retirement() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "pools").await?;
    let mut spec = farm.spec("1");
    spec["pools"] = json!([reports(&farm, "1")]);
    spec["rollout"]["gate"] = json!({"workflowType": "Gate", "timeoutSeconds": 60});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    let names = |build: &str| [format!("{NAME}-{build}"), format!("{NAME}-{build}-reports")];
    let deployments = async || {
        Ok::<_, Error>(farm.deployments().await?.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
    };
    assert_eq!(deployments().await?, names(&v1));
    farm.begin("on-v1").await?;

    // The other pool changes alone. It is a new version of both, and its gate runs on both task queues.
    farm.patch(json!({"spec": {"pools": [reports(&farm, "2")]}})).await?;
    let seen = farm
        .until("the gate runs on both task queues", |seen| {
            let gate = seen["status"]["plan"]["tasks"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|t| t["type"] == "run-gate");
            gate.is_some_and(|gate| {
                gate["progress"]["queues"].as_array().is_some_and(|queues| queues.len() == 2)
            })
        })
        .await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    let v2 = farm.until_current().await?;
    assert_ne!(v1, v2);
    let record = version(&farm.object().await?, &v2).unwrap();
    assert_eq!((&record["ready"], record["pools"].as_array().map(Vec::len)), (&json!(2), Some(2)));
    farm.begin_on(&v2).await?;
    assert_eq!(farm.end("on-v1").await?, v1);
    farm.until("v1 is gone", |seen| version(seen, &v1).is_none()).await?;
    assert_eq!(deployments().await?, names(&v2));

    let mut bad = reports(&farm, "2");
    bad["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Sometimes".into();
    farm.patch(json!({"spec": {"pools": [bad]}})).await?;
    let seen = farm.until_reason("UpToDate", "InvalidSpec").await?;
    let message = windlass_harness::temporal::farm::message(&seen, "UpToDate");
    assert!(message.starts_with("spec.pools[0].template: the API server rejects it: "), "{message}");
    farm.end_all().await
}
