//! Replicas under an autoscaler.

use std::time::Duration;

use serde_json::json;

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, version};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_are_not_said_are_never_written_but_for_a_version_that_is_over() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "scaled").await?;
    let mut spec = farm.spec("1");
    spec.as_object_mut().ok_or("a spec")?.remove("replicas");
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    let (name, one) = farm.deployments().await?.remove(0);
    assert_eq!(one, 1, "as the API server makes it");
    farm.place.kubectl(&["scale", &format!("deployment/{name}"), "--replicas=3"]).await?;
    farm.until("three are told of", |seen| version(seen, &v1).is_some_and(|v1| v1["ready"] == 3)).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(farm.deployments().await?, [(name.clone(), 3)]);

    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    let mut all = farm.deployments().await?;
    all.retain(|(other, _)| *other != name);
    assert_eq!(
        all.first().map(|(_, replicas)| *replicas),
        Some(1),
        "the new one begins as the API server makes it"
    );
    assert!(farm.deployments().await?.contains(&(name.clone(), 3)), "the old one keeps what it was given");
    assert_eq!(farm.end("on-v1").await?, v1);
    farm.until("v1 is gone", |seen| version(seen, &v1).is_none()).await?;
    assert_eq!(farm.deployments().await?, all);
    // A retired version was scaled to zero, and an active one may be by its autoscaler.
    farm.patch(json!({"metadata": {"labels": {"seen": "yes"}}})).await?;
    assert_eq!(farm.until_current().await?, v2);
    farm.end_all().await?;
    Ok(())
}
