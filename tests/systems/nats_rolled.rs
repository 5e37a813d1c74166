//! NATS JetStream as a fleet, rolled by Windlass with the hooks of the sample fleet under a writer that never stops.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Child;

use crate::{
    cluster::{Cluster, Place, applied, updated},
    controlplane::Error,
    killing::{kill, kill_one},
    nats::Nats,
    nats_alone::{in_sync, judge, made},
    programs::{add_nats, add_windlass},
    writer::Writer,
};

const FLEET: (&str, &str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment", "nats");

/// How long is written before and after what is measured.
const CALM: Duration = Duration::from_secs(2);

/// Three servers with a stream in sync, and the operator that works there.
struct Fleet {
    place: Place<'static>,
    servers: Vec<String>,
    nats: Nats,
    operator: Child,
}

impl Fleet {
    async fn new(name: &str) -> Result<Self, Error> {
        let cluster = Cluster::shared().await;
        let images = cluster.images.clone();
        tokio::task::spawn_blocking(move || add_nats(&images)).await??;
        add_windlass(&cluster.images, env!("CARGO_BIN_EXE_windlass"));
        let place = cluster.namespace(name).await;
        let operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
        place.apply("nats/fleet.yaml").await?;
        place.until(FLEET, applied).await?;
        let servers: Vec<String> =
            (0..3).map(|n| cluster.address(&place.ns, &format!("nats-{n}-0"))).collect();
        let mut nats = Nats::new(servers.clone());
        made(&mut nats).await?;
        in_sync(&mut nats).await?;
        Ok(Self { place, servers, nats, operator })
    }

    /// Asks for another template: this annotation of the pods is all that differs.
    async fn want(&self, round: usize) -> Result<(), Error> {
        let metadata = json!({"annotations": {"example.com/round": round.to_string()}});
        let patch =
            json!({"spec": {"template": {"spec": {"podTemplate": {"metadata": metadata}}}}}).to_string();
        self.place.kubectl(&["patch", "nd", "nats", "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Rolls once, and says the longest time in which nothing was acknowledged.
    async fn rolled(&mut self, round: usize, writer: &Writer) -> Result<Duration, Error> {
        tokio::time::sleep(CALM).await;
        writer.forget_gaps();
        self.want(round).await?;
        let fleet = self.place.until(FLEET, applied).await?;
        let last = fleet["status"]["history"].as_array().and_then(|history| history.last()).cloned();
        assert_eq!(last.unwrap_or_default()["outcome"], "Complete", "{:#}", fleet["status"]["history"]);
        // The hook after each node is what waits for this: it is so already.
        in_sync(&mut self.nats).await?;
        tokio::time::sleep(CALM).await;
        Ok(writer.tally().longest_gap)
    }

    async fn restart_operator(&mut self) -> Result<(), Error> {
        self.operator.kill().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.operator = self.place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
        Ok(())
    }

    /// The lines that the last container of a server's pod wrote.
    async fn logs(&self, pod: &str) -> Result<String, Error> {
        self.place.kubectl(&["logs", pod, "-c", "nats"]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windlass_rolls_nats_with_hooks_and_loses_nothing() -> Result<(), Error> {
    let _alone = crate::etcd_rolled::ALONE.lock().await;
    let mut fleet = Fleet::new("nats-fleet").await?;
    let before = fleet.place.until_ready("nats-2-0", &Value::Null).await?;
    let writer = Writer::start(Nats::new(fleet.servers.clone()));
    // What a server says while it goes is read before its pod is gone.
    let ended = fleet.place.followed("nats-2-0", "nats")?;
    fleet.rolled(1, &writer).await?;
    assert_ne!(fleet.place.get("v1", "Pod", "nats-2-0").await?["metadata"]["uid"], before["metadata"]["uid"]);
    let ended = String::from_utf8(ended.await??.stdout)?;
    for line in ["Entering lame duck mode", "Server Exiting", "the server is drained"] {
        assert!(ended.contains(line), "no {line:?} in {ended}");
    }
    assert!(!fleet.logs("nats-2-0").await?.contains("lame duck"));
    judge("NATS, rolled by Windlass with hooks", writer.stop().await, &mut fleet.nats).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_operator_a_server_and_a_hooks_peer_loses_no_message() -> Result<(), Error> {
    let _alone = crate::etcd_rolled::ALONE.lock().await;
    let mut fleet = Fleet::new("nats-killed").await?;
    let writer = Writer::start(Nats::new(fleet.servers.clone()));
    tokio::time::sleep(CALM).await;
    fleet.want(1).await?;
    // The first to go is killed in the middle of going.
    let peers: Vec<String> = fleet.servers.iter().map(|server| format!("--listen={server}:8223")).collect();
    let first = draining(&fleet.servers).await;
    kill_one(&[&peers[first]]).await;
    fleet.place.until(FLEET, |seen| updated(seen) >= 1).await?;
    fleet.restart_operator().await?;
    fleet.place.until(FLEET, |seen| updated(seen) >= 2).await?;
    assert_eq!(kill(&[&peers[first]]), 1);
    fleet.restart_operator().await?;
    fleet.place.until(FLEET, applied).await?;
    in_sync(&mut fleet.nats).await?;
    tokio::time::sleep(CALM).await;
    judge("NATS, killed in between", writer.stop().await, &mut fleet.nats).await
}

/// The first server that is on its way down.
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

/// Takes minutes: `cargo test --test systems -- --ignored --nocapture ten_rollouts_of_nats`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; docs/nats.md has what was measured"]
async fn ten_rollouts_of_nats_by_windlass_lose_no_message() -> Result<(), Error> {
    let _alone = crate::etcd_rolled::ALONE.lock().await;
    let mut fleet = Fleet::new("nats-ten").await?;
    let writer = Writer::start(Nats::new(fleet.servers.clone()));
    let mut gaps = Vec::new();
    for round in 1..=10 {
        gaps.push(fleet.rolled(round, &writer).await?.as_millis());
    }
    eprintln!("NATS by Windlass, InPlace with hooks: {gaps:?} ms");
    judge("ten rollouts by Windlass", writer.stop().await, &mut fleet.nats).await
}
