//! What keeps a version from being created or from taking tasks: limits, and missing task queues.

use serde_json::json;

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, message};
use windlass_harness::temporal::frontend::{Options, Server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_version_at_the_server_limit_is_reported() -> Result<(), Error> {
    let one = &["matching.maxVersionsInDeployment=1"];
    let server = Server::start(Options { settings: one, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "full").await?;
    let mut spec = farm.spec("1");
    spec["progressDeadlineSeconds"] = json!(15);
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    farm.until_reason("UpToDate", "WaitingForPollers").await?;
    let seen = farm.until_reason("UpToDate", "VersionLimitReached").await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    assert!(!message(&seen, "UpToDate").is_empty());
    // Back: the version that never appeared is removed, and the current one stays.
    farm.set_image("1").await?;
    assert_eq!(farm.until_current().await?, v1);
    assert_eq!(farm.end("on-v1").await?, v1);
    Ok(())
}
