//! Windlass rolls NATS JetStream, with the hooks of the sample fleet, under a continuous writer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::systems::{
    killing::{kill, kill_one},
    nats_alone::{self, in_sync, judge, made},
    rolled::{ALONE, CALM, Fleet},
};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{applied, updated};
use windlass_harness::systems::nats::Nats;
use windlass_harness::systems::programs::add_nats;
use windlass_harness::systems::writer::Writer;

/// Three servers of the sample fleet with a stream in sync, and a client.
async fn fleet(namespace: &str) -> Result<(Fleet, Nats), Error> {
    let fleet = Fleet::new(namespace, "nats", add_nats).await?;
    let mut nats = Nats::new(fleet.addresses());
    made(&mut nats).await?;
    in_sync(&mut nats).await?;
    Ok((fleet, nats))
}

/// Another template, which differs in an annotation only.
fn template(round: usize) -> Value {
    json!({"podTemplate": {"metadata": {"annotations": {"example.com/round": round.to_string()}}}})
}

/// Rolls once, and returns the longest time without an acknowledged write.
async fn rolled(fleet: &Fleet, nats: &mut Nats, round: usize, writer: &Writer) -> Result<Duration, Error> {
    // The hook after each node waits for this, so it holds already.
    fleet.rolled(&template(round), writer, async || in_sync(nats).await.map(drop)).await
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
async fn killing_the_operator_a_server_and_a_hooks_peer_loses_no_message() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (mut fleet, mut nats) = fleet("nats-killed").await?;
    let writer = Writer::start(Nats::new(fleet.addresses()));
    tokio::time::sleep(CALM).await;
    fleet.want(&template(1)).await?;
    // The first server is killed during its shutdown.
    let servers = fleet.addresses();
    let peers: Vec<String> = servers.iter().map(|server| format!("--listen={server}:8223")).collect();
    let first = draining(&servers).await;
    kill_one(&[&peers[first]]).await;
    fleet.until(|seen| updated(seen) >= 1).await?;
    fleet.restart_operator().await?;
    fleet.until(|seen| updated(seen) >= 2).await?;
    assert_eq!(kill(&[&peers[first]]), 1);
    fleet.restart_operator().await?;
    fleet.until(applied).await?;
    in_sync(&mut nats).await?;
    tokio::time::sleep(CALM).await;
    judge("NATS, killed in between", writer.stop().await, &mut nats).await
}

/// The first server that is shutting down.
async fn draining(servers: &[String]) -> usize {
    let client = reqwest::Client::new();
    for _ in 0..3000 {
        for (number, server) in servers.iter().enumerate() {
            let asked = client.get(format!("http://{server}:8223/lame-duck")).send().await;
            if let Ok(answer) = asked
                && answer.text().await.is_ok_and(|state| !state.contains("serving"))
            {
                return number;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no server goes");
}

/// Takes minutes: `cargo test --test cluster systems:: -- --ignored --nocapture ten_rollouts_of_nats`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; docs/nats.md has what was measured"]
async fn ten_rollouts_of_nats_by_windlass_and_ten_by_a_stateful_set_lose_no_message() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, mut nats) = fleet("nats-ten").await?;
    let writer = Writer::start(Nats::new(fleet.addresses()));
    let mut gaps = Vec::new();
    for round in 1..=10 {
        gaps.push(rolled(&fleet, &mut nats, round, &writer).await?.as_millis());
    }
    eprintln!("NATS by Windlass, InPlace with hooks: {gaps:?} ms");
    judge("ten rollouts by Windlass", writer.stop().await, &mut nats).await?;
    drop(fleet);
    let (place, servers) = nats_alone::three("nats-set-ten").await?;
    let mut nats = Nats::new(servers.clone());
    made(&mut nats).await?;
    in_sync(&mut nats).await?;
    let writer = Writer::start(Nats::new(servers));
    let mut gaps = Vec::new();
    for round in 1..=10 {
        gaps.push(nats_alone::rolled(&place, &mut nats, round, &writer).await?.as_millis());
    }
    eprintln!("NATS by a StatefulSet, RollingUpdate: {gaps:?} ms");
    judge("ten rollouts by a StatefulSet", writer.stop().await, &mut nats).await
}
