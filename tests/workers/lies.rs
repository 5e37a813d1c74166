//! Wrong or late answers: nothing is scaled down or deleted because of them, and a rollout continues afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    liar::{Liar, Lie},
    stage::{described, server},
};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, version};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// A farm whose connection to Temporal passes a falsifying proxy.
async fn farm(name: &str) -> Result<(Farm<'static>, Liar, Value), Error> {
    let server = server().await;
    let farm = Farm::new(Cluster::shared().await, server, OPERATOR, name).await?;
    let liar = Liar::before(server).await?;
    let mut spec = farm.spec("1");
    spec["connection"]["address"] = json!(liar.address());
    Ok((farm, liar, spec))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporal_that_lists_nothing_or_knows_nothing_takes_nothing_from_anybody() -> Result<(), Error> {
    let (farm, liar, spec) = farm("lies").await?;
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin("on-v2").await?;
    farm.until("v1 drains", |seen| version(seen, &v1).is_some_and(|v1| v1["state"] == "Draining")).await?;
    let before = farm.deployments().await?;
    assert_eq!(before.len(), 2);
    for (lie, reason) in [
        (Lie::Empty, "TemporalUnreachable"),
        (Lie::Unknown, "TemporalUnreachable"),
        (Lie::Limits, "RateLimited"),
    ] {
        liar.tells(lie);
        let seen = farm.until_reason("UpToDate", reason).await?;
        assert!(!seen["status"]["temporalLostAt"].is_null(), "{lie:?}: since when");
        // Delays of 0 s: a version believed to be drained would be retired in this time.
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(farm.deployments().await?, before, "{lie:?}: nothing goes");
        let told: Vec<Value> =
            farm.object().await?["status"]["versions"].as_array().cloned().unwrap_or_default();
        assert_eq!(told.len(), 2, "{lie:?}: nothing is forgotten: {told:?}");
        liar.tells(Lie::None);
        farm.until_reason("UpToDate", "Applied").await?;
    }
    assert_eq!((farm.end("on-v1").await?, farm.end("on-v2").await?), (v1.clone(), v2));
    farm.until("v1 goes now", |seen| version(seen, &v1).is_none()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_temporal_makes_a_rollout_slow_and_skips_no_step() -> Result<(), Error> {
    let (farm, liar, spec) = farm("slow").await?;
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    liar.tells(Lie::Slow(Duration::from_millis(1_500)));
    farm.set_image("2").await?;
    let mut steps: Vec<i64> = Vec::new();
    while described(&farm).await?.routing.current.is_some_and(|build| build.as_str() == v1) {
        let ramp = described(&farm).await?.routing.ramp;
        let percent = ramp.map_or(0, |ramp| ramp.percent.0 as i64);
        if percent > 0 && steps.last() != Some(&percent) {
            steps.push(percent);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(steps, [5, 50]);
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    assert_eq!(farm.end("on-v1").await?, v1);
    farm.end_all().await?;
    Ok(())
}
