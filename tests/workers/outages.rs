//! A missing Temporal, and wrong credentials: nothing is scaled down or deleted, and each has its reason.

use std::time::Duration;

use serde_json::json;

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, condition, message};
use windlass_harness::temporal::frontend::{Options, SERVER_NAME, Server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn while_temporal_is_gone_nothing_goes_and_after_it_the_rollout_goes_on() -> Result<(), Error> {
    let server = Server::start(Options { durable: true, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "outage").await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    assert_eq!(farm.begin("on-v1").await?, v1);
    // Its connections stay, and nothing answers.
    server.freeze();
    farm.set_image("2").await?;
    let seen = farm.until_reason("UpToDate", "TemporalUnreachable").await?;
    assert!(!seen["status"]["temporalLostAt"].is_null(), "since when: {:#}", seen["status"]);
    let before = farm.deployments().await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = farm.deployments().await?;
    assert_eq!(before, after, "nothing is made, scaled or deleted");
    assert!(after.iter().any(|(name, replicas)| name.contains(&v1) && *replicas == 1), "{after:?}");
    server.thaw();
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    assert_ne!(v1, v2);
    assert_eq!(farm.end("on-v1").await?, v1, "its workers never went");
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_for_a_minute_in_mid_ramp_costs_no_version_its_workers() -> Result<(), Error> {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_connection_has_three_names() -> Result<(), Error> {
    let server = Server::start(Options { guarded: true, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "reasons").await?;
    let mut spec = farm.spec("1");
    let guarded = json!({
        "address": server.by_certificate(), "namespace": "default",
        "tls": {"caSecret": "ca", "certSecret": "cert", "serverName": SERVER_NAME},
    });
    spec["connection"] = guarded.clone();
    farm.create(spec).await?;
    let seen = farm.until_reason("UpToDate", "ConnectionSecretNotFound").await?;
    assert!(message(&seen, "UpToDate").contains("/ca"), "{}", message(&seen, "UpToDate"));

    let secret = async |name: &str, pairs: &[(&str, &str)]| -> Result<(), Error> {
        let data: serde_json::Map<String, serde_json::Value> =
            pairs.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        let path = farm.place.cluster.cp.folder().join(format!("{name}.json"));
        std::fs::write(&path, object.to_string())?;
        farm.place.kubectl(&["apply", "-f", &path.display().to_string()]).await.map(drop)
    };
    secret("ca", &[("ca.crt", &server.pem("ca.crt"))]).await?;
    secret("cert", &[("tls.crt", "no certificate"), ("tls.key", "no key")]).await?;
    farm.until_reason("UpToDate", "CredentialsInvalid").await?;

    secret("cert", &[("tls.crt", &server.pem("client.crt")), ("tls.key", &server.pem("client.key"))]).await?;
    farm.until("the operator is let in", |seen| {
        let reason = condition(seen, "UpToDate").1;
        !["ConnectionSecretNotFound", "CredentialsInvalid", "TemporalUnreachable"].contains(&reason.as_str())
    })
    .await?;
    let gone = json!({"spec": {"connection": {"address": "127.72.33.1:9", "tls": null}}});
    farm.patch(gone).await?;
    farm.until_reason("UpToDate", "TemporalUnreachable").await?;
    Ok(())
}
