//! The waits of production, which all other tests shorten: minutes, so this test only runs with `-- --ignored waits`.

use std::time::Duration;

use serde_json::json;
use windlass::clock::monotonic;

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, version};
use windlass_harness::temporal::frontend::{Options, Server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes: Temporal looks at a version's drainage after three, and forgets pollers after five"]
async fn version_is_deleted_within_minutes_with_default_server_waits() -> Result<(), Error> {
    let server = Server::start(Options { default_waits: true, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "production").await?;
    let mut spec = farm.spec("1");
    spec["sunset"] = json!({"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 0});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    assert_eq!(farm.end("on-v1").await?, v1);
    let began = monotonic();
    let until = async |what: &str,
                       minutes: u64,
                       holds: &dyn Fn(&serde_json::Value) -> bool|
           -> Result<Duration, Error> {
        loop {
            let seen = farm.object().await?;
            if holds(&seen) {
                println!("{what} after {:?}", began.elapsed());
                return Ok(began.elapsed());
            }
            if began.elapsed() > Duration::from_secs(minutes * 60) {
                return Err(
                    format!("not {what} after {minutes} min: {:#}", seen["status"]["versions"]).into()
                );
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    until("drained", 8, &|seen| version(seen, &v1).is_some_and(|v1| v1["state"] == "Drained")).await?;
    until("forgotten", 20, &|seen| version(seen, &v1).is_none()).await?;
    assert_eq!(farm.deployments().await?.len(), 1);
    assert_eq!(farm.until_current().await?, v2);
    farm.end_all().await?;
    Ok(())
}
