//! NATS JetStream as a plain StatefulSet, for comparison with Windlass.

use std::time::Duration;

use serde_json::{Value, json};

use crate::systems::rolled::CALM;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{Cluster, Place};
use windlass_harness::systems::nats::Nats;
use windlass_harness::systems::programs::add_nats;
use windlass_harness::systems::writer::{Tally, Writer, judge_tally};

/// Elections of a stream and of JetStream itself take seconds.
const BEARABLE: Duration = Duration::from_secs(30);

/// Three ready servers of a StatefulSet, and their addresses.
pub async fn three(name: &str) -> Result<(Place<'static>, Vec<String>), Error> {
    let cluster = Cluster::shared().await;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || add_nats(&images)).await??;
    let place = cluster.namespace(name).await;
    place.apply("nats/statefulset.yaml").await?;
    for pod in ["nats-0", "nats-1", "nats-2"] {
        place.until_ready(pod, &Value::Null).await?;
    }
    let servers = (0..3).map(|n| cluster.address(&place.ns, &format!("nats-{n}"))).collect();
    Ok((place, servers))
}

/// Retries until it succeeds: JetStream elects its leader after the servers are up.
pub async fn made(nats: &mut Nats) -> Result<(), Error> {
    let mut last = Ok(());
    for _ in 0..150 {
        last = nats.make_stream().await;
        if last.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(last?)
}

/// Waits until a stream has a leader and all its replicas are current.
pub async fn in_sync(nats: &mut Nats) -> Result<Value, Error> {
    let mut last = Value::Null;
    for _ in 0..300 {
        last = nats.stream("INFO", &json!({})).await.unwrap_or_default()["cluster"].clone();
        let replicas = last["replicas"].as_array().cloned().unwrap_or_default();
        if last["leader"].is_string() && replicas.len() == 2 && replicas.iter().all(|r| r["current"] == true)
        {
            return Ok(last);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(format!("the stream is not in sync: {last}").into())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_replicated_stream_survives_each_pods_deletion() -> Result<(), Error> {
    let _alone = crate::systems::rolled::ALONE.lock().await;
    let (place, servers) = three("nats-set").await?;
    let mut nats = Nats::new(servers.clone());
    made(&mut nats).await?;
    in_sync(&mut nats).await?;
    let writer = Writer::start(Nats::new(servers));
    tokio::time::sleep(CALM).await;
    writer.forget_gaps();
    for pod in ["nats-0", "nats-1", "nats-2"] {
        let before = place.get("v1", "Pod", pod).await?;
        place.kubectl(&["delete", "pod", pod, "--wait=false"]).await?;
        place.until_ready(pod, &before["metadata"]["uid"]).await?;
        in_sync(&mut nats).await?;
    }
    tokio::time::sleep(CALM).await;
    judge("NATS, each pod deleted", writer.stop().await, &mut nats).await
}

/// Rolls out another template, and returns the longest time without an acknowledged write.
pub async fn rolled(
    place: &Place<'_>,
    nats: &mut Nats,
    round: usize,
    writer: &Writer,
) -> Result<Duration, Error> {
    tokio::time::sleep(CALM).await;
    writer.forget_gaps();
    let annotations = json!({"example.com/round": round.to_string()});
    let template = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    place.kubectl(&["patch", "statefulset", "nats", "-p", &template.to_string()]).await?;
    place.kubectl(&["rollout", "status", "statefulset/nats", "--timeout=120s"]).await?;
    in_sync(nats).await?;
    tokio::time::sleep(CALM).await;
    Ok(writer.tally().longest_gap)
}

/// Fails unless all acknowledged writes exist and no gap was too long.
pub async fn judge(what: &str, mut tally: Tally, nats: &mut Nats) -> Result<(), Error> {
    let lost = nats.lost(&tally.acknowledged).await?;
    judge_tally(what, &tally, &lost, BEARABLE);
    // An unwritten message counts as missing, and so does one with another value.
    let first = tally.acknowledged.values().next().cloned().unwrap_or_default();
    tally.acknowledged = [(u64::MAX, first), (u64::MAX - 1, u64::MAX.to_string())].into();
    assert_eq!(nats.lost(&tally.acknowledged).await?.len(), 2);
    Ok(())
}
