//! The rate of requests to Temporal: high during changes, low at rest.

use std::time::Duration;

use serde_json::json;

use crate::{liar::Liar, stage::server};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::Farm;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// The intervals between descriptions after a time.
fn between(liar: &Liar, after: tokio::time::Instant) -> Vec<f64> {
    let all: Vec<_> = liar.described().into_iter().filter(|at| *at > after).collect();
    all.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "five minutes, of which most are waited at rest"]
async fn a_deployment_is_described_every_few_seconds_while_it_moves_and_every_half_minute_at_rest()
-> Result<(), Error> {
    let server = server().await;
    let farm = Farm::new(Cluster::shared().await, server, OPERATOR, "paces").await?;
    let liar = Liar::before(server).await?;
    let mut spec = farm.spec("1");
    spec["connection"]["address"] = json!(liar.address());
    spec["rollout"]["steps"] = json!([{"percent": 5, "pauseSeconds": 25}]);
    spec["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 3600});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    farm.set_image("2").await?;
    farm.until("the ramp", |seen| seen["status"]["rampPercent"] == 5).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let began = windlass::clock::monotonic();
    tokio::time::sleep(Duration::from_secs(16)).await;
    let moving = between(&liar, began);
    assert!(moving.len() >= 2, "{moving:?}");
    let seldom = moving.iter().filter(|seconds| !(1.9..=6.5).contains(*seconds)).count();
    assert!(seldom <= 1, "2 to 5 s while it moves, but for what a child's change adds: {moving:?}");

    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    farm.end(&format!("on-{v1}")).await?;
    // Every 5 s for two minutes after a version's state changed, the last being that the old one is drained.
    tokio::time::sleep(Duration::from_secs(150)).await;
    let began = windlass::clock::monotonic();
    tokio::time::sleep(Duration::from_secs(125)).await;
    let resting = between(&liar, began);
    assert!(resting.len() >= 2, "{resting:?}");
    assert!(resting.iter().all(|seconds| (29.0..=43.0).contains(seconds)), "30 to 40 s at rest: {resting:?}");
    let differ = resting.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 0.05);
    assert!(differ, "with jitter: {resting:?}");
    farm.end_all().await?;
    Ok(())
}
