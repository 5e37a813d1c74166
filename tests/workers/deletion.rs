//! The deletion of a `WorkerDeployment` under each policy: never with running workflows, unless requested, and never
//! stuck.

use std::time::Duration;

use crate::stage::{described, server};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, message};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

async fn farm(name: &str) -> Result<Farm<'static>, Error> {
    Farm::new(Cluster::shared().await, server().await, OPERATOR, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_worker_deployment_drains_before_it_is_removed() -> Result<(), Error> {
    let farm = farm("deleted").await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin("on-v2").await?;
    // A workflow is pinned once its first task is done.
    farm.until("v1 drains", |seen| {
        windlass_harness::temporal::farm::version(seen, &v1).is_some_and(|v1| v1["state"] == "Draining")
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    farm.delete().await?;
    farm.until("it waits", |seen| message(seen, "Reconciling").contains("running workflows on")).await?;
    let given_back = described(&farm).await?;
    assert_eq!((given_back.routing.current, given_back.routing.ramp), (None, None), "tasks are given back");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(farm.deployments().await?.len(), 2, "workflows run on both");
    assert_eq!((farm.end("on-v1").await?, farm.end("on-v2").await?), (v1.clone(), v2));
    farm.until_gone().await?;
    assert_eq!(farm.deployments().await?, []);
    match described(&farm).await {
        Ok(described) => {
            assert_eq!((described.versions, described.manager), (vec![], None), "nothing of it is left");
        }
        Err(error) => assert!(error.to_string().contains("not found in Temporal"), "{error}"),
    }
    Ok(())
}
