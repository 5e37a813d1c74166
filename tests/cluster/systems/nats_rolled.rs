//! Windlass rolls NATS JetStream, with the hooks of the sample fleet, under a continuous writer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::systems::rolled::{ALONE, Fleet};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::nats::Nats;
use windlass_harness::systems::programs::add_nats;
use windlass_harness::systems::writer::{Tally, Writer, judge_tally};

/// Elections of a stream and of JetStream itself take seconds.
const BEARABLE: Duration = Duration::from_secs(30);

/// Waits until the stream has a leader and this many replicas, all of which are current.
async fn in_sync(nats: &mut Nats, replicas: usize) -> Result<Value, Error> {
    let mut last = Value::Null;
    for _ in 0..300 {
        last = nats.stream("INFO", &json!({})).await.unwrap_or_default()["cluster"].clone();
        let others = last["replicas"].as_array().cloned().unwrap_or_default();
        let are_current = others.iter().all(|replica| replica["current"] == true);
        if last["leader"].is_string() && others.len() == replicas - 1 && are_current {
            return Ok(last);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(format!("the stream is not in sync: {last}").into())
}

/// Fails unless all acknowledged writes exist and no gap was too long.
async fn judge(what: &str, mut tally: Tally, nats: &mut Nats) -> Result<(), Error> {
    let lost = nats.lost(&tally.acknowledged).await?;
    judge_tally(what, &tally, &lost, BEARABLE);
    // An unwritten message counts as missing, and so does one with another value.
    let first = tally.acknowledged.values().next().cloned().unwrap_or_default();
    tally.acknowledged = [(u64::MAX, first), (u64::MAX - 1, u64::MAX.to_string())].into();
    assert_eq!(nats.lost(&tally.acknowledged).await?.len(), 2);
    Ok(())
}

/// Three servers of the sample fleet with a stream in sync, and a client.
async fn fleet(namespace: &str) -> Result<(Fleet, Nats), Error> {
    let fleet = Fleet::new(namespace, "nats", add_nats).await?;
    let mut nats = Nats::new(fleet.addresses());
    in_sync(&mut nats, 3).await?;
    Ok((fleet, nats))
}

/// Another template, which differs in an annotation only.
fn template(round: usize) -> Value {
    json!({"podTemplate": {"metadata": {"annotations": {"example.com/round": round.to_string()}}}})
}

/// Rolls once, and returns the longest time without an acknowledged write.
async fn rolled(fleet: &Fleet, nats: &mut Nats, round: usize, writer: &Writer) -> Result<Duration, Error> {
    // The hook after each node waits for this, so it holds already.
    fleet.rolled(&template(round), writer, async || in_sync(nats, 3).await.map(drop)).await
}

/// The log of the last container of a server's pod.
async fn logs(fleet: &Fleet, pod: &str) -> Result<String, Error> {
    fleet.place.kubectl(&["logs", pod, "-c", "nats"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn windlass_rolls_nats_with_hooks_and_loses_nothing() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, mut nats) = fleet("nats-fleet").await?;
    let before = fleet.place.until_ready("nats-2-0", &Value::Null).await?;
    let writer = Writer::start(Nats::new(fleet.addresses()));
    // Follow the log: it is gone with the pod.
    let ended = fleet.place.followed("nats-2-0", "nats")?;
    rolled(&fleet, &mut nats, 1, &writer).await?;
    assert_ne!(fleet.place.get("v1", "Pod", "nats-2-0").await?["metadata"]["uid"], before["metadata"]["uid"]);
    let ended = String::from_utf8(ended.await??.stdout)?;
    for line in ["Entering lame duck mode", "Server Exiting", "the server is drained"] {
        assert!(ended.contains(line), "no {line:?} in {ended}");
    }
    assert!(!logs(&fleet, "nats-2-0").await?.contains("lame duck"));
    judge("NATS, rolled by Windlass with hooks", writer.stop().await, &mut nats).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn stream_is_made_and_spread_over_new_servers() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, mut nats) = fleet("nats-grows").await?;
    let writer = Writer::start(Nats::new(fleet.addresses()));
    fleet.scale(5).await?;
    in_sync(&mut nats, 5).await?;
    judge("NATS, with two servers more", writer.stop().await, &mut nats).await
}
