//! Windlass rolls etcd from one patch version to the next, with the hooks of the sample fleet, under a continuous
//! writer.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::systems::rolled::{ALONE, Fleet};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::etcd::Etcd;
use windlass_harness::systems::programs::{ETCD, add_etcd};
use windlass_harness::systems::writer::{Tally, Writer, judge_tally};

/// The longest acceptable gap: a rollout loses no quorum, so a gap is at most an election.
const BEARABLE: Duration = Duration::from_secs(5);
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
async fn member_joins_before_its_first_pod_and_leaves_before_it_is_removed() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (fleet, etcd) = fleet("etcd-grows").await?;
    let members = |count: usize| (0..count).map(|of| format!("etcd-{of}-0")).collect::<BTreeSet<_>>();
    assert_eq!(etcd.names().await?, members(3));
    let writer = Writer::start(etcd.clone());
    fleet.scale(4).await?;
    assert_eq!(etcd.names().await?, members(4));
    // With its claim, it loses what it knew.
    let pod = fleet.place.get("v1", "Pod", "etcd-3-0").await?;
    fleet.place.kubectl(&["delete", "statefulnode", "etcd-3"]).await?;
    fleet.place.until_ready("etcd-3-0", &pod["metadata"]["uid"]).await?;
    assert_eq!(etcd.names().await?, members(4));
    fleet.scale(3).await?;
    assert_eq!(etcd.names().await?, members(3));
    judge("etcd, with one member more and one less", ETCD[0], &writer.stop().await, &etcd, BEARABLE).await
}
