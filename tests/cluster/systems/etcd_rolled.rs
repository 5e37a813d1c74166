//! Windlass rolls etcd from one patch version to the next, with the hooks of the sample fleet, under a continuous
//! writer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::systems::{
    etcd_alone,
    killing::{kill, kill_one},
    rolled::{ALONE, CALM, Fleet},
};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{applied, updated};
use windlass_harness::systems::etcd::Etcd;
use windlass_harness::systems::programs::{ETCD, add_etcd};
use windlass_harness::systems::writer::{Tally, Writer, judge_tally};

/// The longest acceptable gap: a rollout loses no quorum, so a gap is at most an election.
const BEARABLE: Duration = Duration::from_secs(5);
/// The same with another member killed: there is no quorum until one of them is back.
const BEARABLE_KILLED: Duration = Duration::from_mins(1);
/// Fails unless all acknowledged writes exist, every member runs this version and no gap was too long.
pub async fn judge(
    what: &str,
    version: &str,
    tally: &Tally,
    etcd: &Etcd,
    bearable: Duration,
) -> Result<(), Error> {
    let members: Vec<_> = etcd.members().await.into_iter().flatten().collect();
    assert_eq!(members.len(), 3);
    assert!(
        version.ends_with(&members[0].version) && members.iter().all(|m| m.version == members[0].version)
    );
    let lost = etcd.lost(&tally.acknowledged).await?;
    judge_tally(what, tally, &lost, bearable);
    Ok(())
}

/// The sample fleet with three ready members, and a client.
async fn fleet(namespace: &str) -> Result<(Fleet, Etcd), Error> {
    let fleet = Fleet::new(namespace, "etcd", add_etcd).await?;
    let etcd = Etcd::new(fleet.addresses());
    Ok((fleet, etcd))
}

fn template(image: &str) -> Value {
    json!({"image": image})
}

/// Rolls out an image and returns the longest time without an acknowledged write.
async fn rolled(fleet: &Fleet, image: &str, writer: &Writer) -> Result<Duration, Error> {
    fleet.rolled(&template(image), writer, async || Ok(())).await
}

/// The states of a node's tasks of one type.
fn states(node: &Value, kind: &str) -> Vec<String> {
    let tasks = node["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    let of_kind = tasks.iter().filter(|task| task["type"] == kind);
    of_kind.map(|task| task["state"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn windlass_rolls_etcd_with_hooks_and_loses_nothing() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, etcd) = fleet("etcd-fleet").await?;
    let writer = Writer::start(etcd.clone());
    rolled(&fleet, ETCD[1], &writer).await?;
    let tally = writer.stop().await;
    judge("Windlass, InPlace with hooks", ETCD[1], &tally, &etcd, BEARABLE).await?;
    for node in ["etcd-0", "etcd-1", "etcd-2"] {
        let node = fleet.place.get("windlass.dev/v1alpha1", "StatefulNode", node).await?;
        assert_eq!(states(&node, "run-job"), ["Complete"], "{:#}", node["status"]["plan"]);
        assert_eq!(states(&node, "call-http"), ["Complete"], "{:#}", node["status"]["plan"]);
    }
    // The leader handed over before its turn, and no member was replaced before the others were checked.
    let mut said = String::new();
    let jobs =
        fleet.place.kubectl(&["get", "jobs", "-l", "windlass.dev/hook=hand-over", "-o", "name"]).await?;
    for job in jobs.lines() {
        said += &fleet.place.kubectl(&["logs", job]).await?;
    }
    assert!(said.contains("Leadership transferred from"), "{said}");
    assert_eq!(said.matches("is healthy: successfully committed proposal").count(), 6, "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn killing_the_operator_a_member_and_a_hooks_job_loses_nothing() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (mut fleet, etcd) = fleet("etcd-killed").await?;
    let writer = Writer::start(etcd.clone());
    tokio::time::sleep(CALM).await;
    fleet.want(&template(ETCD[1])).await?;
    kill_one(&["etcdctl --endpoints", "member list"]).await;
    fleet.until(|seen| updated(seen) >= 1).await?;
    fleet.restart_operator().await?;
    fleet.until(|seen| updated(seen) >= 2).await?;
    let member = fleet.place.cluster.address(&fleet.place.ns, "etcd-2-0");
    assert_eq!(kill(&[&format!("--listen-client-urls=http://{member}:2379")]), 1);
    fleet.restart_operator().await?;
    fleet.until(applied).await?;
    tokio::time::sleep(CALM).await;
    let tally = writer.stop().await;
    judge("Windlass, killed in between", ETCD[1], &tally, &etcd, BEARABLE_KILLED).await?;
    let pod = fleet.place.get("v1", "Pod", "etcd-2-0").await?;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1, "{:#}", pod["status"]);
    Ok(())
}

/// Takes minutes: `cargo test --test cluster systems:: -- --ignored --nocapture ten_rollouts_of_etcd`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; docs/etcd.md has what was measured"]
async fn ten_rollouts_of_etcd_by_windlass_and_ten_by_a_stateful_set_lose_nothing() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, etcd) = fleet("etcd-ten").await?;
    let writer = Writer::start(etcd.clone());
    let mut gaps = Vec::new();
    for round in 1..=10 {
        gaps.push(rolled(&fleet, ETCD[round % 2], &writer).await?.as_millis());
    }
    eprintln!("Windlass, InPlace with hooks: {gaps:?} ms");
    judge("ten rollouts by Windlass", ETCD[0], &writer.stop().await, &etcd, BEARABLE).await?;
    drop(fleet);
    let (place, etcd) = etcd_alone::three("etcd-set-ten").await?;
    let writer = Writer::start(etcd.clone());
    let mut gaps = Vec::new();
    for round in 1..=10 {
        gaps.push(etcd_alone::rolled(&place, ETCD[round % 2], &writer).await?.as_millis());
    }
    eprintln!("StatefulSet, RollingUpdate: {gaps:?} ms");
    judge("ten rollouts by a StatefulSet", ETCD[0], &writer.stop().await, &etcd, BEARABLE).await
}
