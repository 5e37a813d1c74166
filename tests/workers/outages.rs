//! A missing Temporal, and wrong credentials: nothing is scaled down or deleted, and each has its reason.

use std::time::Duration;

use serde_json::json;

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::Farm;
use windlass_harness::temporal::frontend::{Options, Server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn server_outage_during_a_ramp_removes_no_workers() -> Result<(), Error> {
    let server = Server::start(Options { durable: true, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "minute").await?;
    let mut spec = farm.spec("1");
    spec["rollout"]["steps"] =
        json!([{"percent": 5, "pauseSeconds": 10}, {"percent": 50, "pauseSeconds": 3}]);
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    assert_eq!(farm.begin("on-v1").await?, v1);
    farm.set_image("2").await?;
    farm.until("the ramp", |seen| seen["status"]["rampPercent"] == 5).await?;
    server.kill();
    let seen = farm.until_reason("UpToDate", "TemporalUnreachable").await?;
    let target = seen["status"]["targetBuildID"].clone();
    let before = farm.deployments().await?;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(before, farm.deployments().await?, "nothing is made, scaled or deleted");
    server.restart().await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    assert_eq!((&target, v1 == v2), (&json!(v2), false));
    assert_eq!(farm.end("on-v1").await?, v1, "its workers never went");
    farm.end_all().await?;
    Ok(())
}
