//! NATS JetStream as a fleet, restarted by Windlass one server at a time under a writer that never stops.

use std::time::Duration;

use serde_json::Value;

use crate::{
    cluster::{Cluster, applied},
    controlplane::Error,
    nats::Nats,
    nats_alone::{in_sync, judge, made},
    programs::add_nats,
    writer::Writer,
};

const FLEET: (&str, &str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment", "nats");

#[tokio::test(flavor = "multi_thread")]
async fn windlass_restarts_nats_and_loses_nothing() -> Result<(), Error> {
    let _alone = crate::etcd_rolled::ALONE.lock().await;
    let cluster = Cluster::shared().await;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || add_nats(&images)).await??;
    let place = cluster.namespace("nats-fleet").await;
    let _operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
    place.apply("nats/fleet.yaml").await?;
    place.until(FLEET, applied).await?;
    let servers: Vec<String> = (0..3).map(|n| cluster.address(&place.ns, &format!("nats-{n}-0"))).collect();
    let mut nats = Nats::new(servers.clone());
    made(&mut nats).await?;
    in_sync(&mut nats).await?;
    let before = place.until_ready("nats-2-0", &Value::Null).await?;
    let writer = Writer::start(Nats::new(servers));
    tokio::time::sleep(Duration::from_secs(2)).await;
    writer.forget_gaps();
    let now = windlass::clock::Clock::now(&windlass::clock::SystemClock).to_rfc3339();
    place.kubectl(&["annotate", "nd", "nats", &format!("windlass.dev/restartedAt={now}")]).await?;
    let restarted = |fleet: &Value| {
        let plan = &fleet["status"]["plan"];
        fleet["status"]["restartedAt"].is_string() && plan["state"] == "Complete" && applied(fleet)
    };
    place.until(FLEET, restarted).await?;
    assert_ne!(place.get("v1", "Pod", "nats-2-0").await?["metadata"]["uid"], before["metadata"]["uid"]);
    in_sync(&mut nats).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    judge("NATS, restarted by Windlass", writer.stop().await, &mut nats).await
}
