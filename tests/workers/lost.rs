//! A server that is gone, hangs, comes back, or limits the rate.

use std::time::Duration;

use windlass::clock::monotonic;
use windlass_temporal::port::{BuildId, DeploymentName, Missing, TemporalError, VersionStatus};

use crate::{stage::client, worker::Worker};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, condition};
use windlass_harness::temporal::frontend::{Options, Server};

#[tokio::test(flavor = "multi_thread")]
async fn stopped_or_frozen_server_is_unreachable_until_it_recovers() {
    let durable = Options { durable: true, ..Options::default() };
    let server = Server::start(durable).await.expect("a server");
    let port = client(&server.address()).await;
    let (name, v1) = (DeploymentName::new("shop/lost"), BuildId::new("v1"));
    let _worker = Worker::start(&server, name.as_str(), "v1", &[]).await.expect("a worker");
    let known = async || {
        let until = monotonic() + Duration::from_secs(30);
        loop {
            match port.describe_version(&name, &v1).await {
                Ok(described) => return described,
                Err(error) => assert!(monotonic() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    assert_eq!(known().await.summary.status, VersionStatus::Inactive);

    server.kill();
    let began = monotonic();
    for _ in 0..2 {
        let answer = port.describe_version(&name, &v1).await;
        assert!(matches!(answer, Err(TemporalError::Unreachable { .. })), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "a port that nobody listens at answers at once");
    server.restart().await.expect("it starts again");
    assert_eq!(known().await.summary.status, VersionStatus::Inactive, "what it knew it knows");

    server.freeze();
    let began = monotonic();
    let answer = port.describe_version(&name, &v1).await;
    let Err(TemporalError::Unreachable { message }) = answer else { panic!("{answer:?}") };
    let waited = began.elapsed();
    assert!((9..=11).contains(&waited.as_secs()), "{waited:?}");
    assert!(message.contains("10 s") || message.contains("imeout"), "{message}");
    server.thaw();
    assert_eq!(known().await.summary.status, VersionStatus::Inactive);
}

#[tokio::test(flavor = "multi_thread")]
async fn overloaded_server_returns_rate_limited() {
    let few = &["frontend.globalNamespaceWorkerDeploymentReadRPS=2"];
    let server = Server::start(Options { settings: few, ..Options::default() }).await.expect("a server");
    let port = client(&server.address()).await;
    let name = DeploymentName::new("shop/limited");
    let mut limited = 0;
    // The limiter allows a burst of ten seconds.
    for _ in 0..40 {
        match port.describe_deployment(&name).await {
            Err(TemporalError::RateLimited { .. }) => limited += 1,
            Err(TemporalError::NotFound { what: Missing::Deployment, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(limited > 10, "{limited} of 40");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_reader_of_a_deployment_is_reported_only_after_a_minute() -> Result<(), Error> {
    let few = &["frontend.globalNamespaceWorkerDeploymentReadRPS=10"];
    let server = Server::start(Options { settings: few, ..Options::default() }).await.expect("a server");
    let farm = Farm::new(Cluster::shared().await, &server, env!("CARGO_BIN_EXE_windlass"), "second").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = serde_json::json!({"strategy": "AllAtOnce"});
    farm.create(spec).await?;
    farm.until_current().await?;
    let before = farm.deployments().await?;
    let (port, name) = (client(&server.address()).await, DeploymentName::new(farm.deployment()));
    let reader = tokio::spawn(async move {
        loop {
            let _ = port.describe_deployment(&name).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let is_lost = |seen: &serde_json::Value| seen["status"]["temporalLostAt"].is_string();
    farm.until("a read of the operator is limited", is_lost).await?;
    let until = monotonic() + Duration::from_secs(45);
    while monotonic() < until {
        let seen = farm.object().await?;
        assert_eq!(condition(&seen, "UpToDate"), ("True".to_owned(), "Applied".to_owned()), "{seen:#}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    reader.abort();
    farm.until("its reads succeed again", |seen| !is_lost(seen)).await?;
    assert_eq!(farm.deployments().await?, before);
    Ok(())
}
