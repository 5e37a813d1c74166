//! etcd rolled from one patch version to the next by Windlass, under a writer that never stops.

use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;

use crate::{
    cluster::{Cluster, Place, applied},
    controlplane::Error,
    etcd::Etcd,
    programs::{ETCD, add_etcd},
    writer::{Tally, Writer, judge_tally},
};

/// What is measured is measured alone.
pub static ALONE: Mutex<()> = Mutex::const_new(());

/// No quorum is lost in a rollout, so nobody has to wait longer than for an election.
const BEARABLE: Duration = Duration::from_secs(5);

/// Fails unless all that was acknowledged is there, everybody runs the new version and nobody had to wait long.
pub async fn judge(what: &str, tally: Tally, etcd: &Etcd) -> Result<(), Error> {
    let members: Vec<_> = etcd.members().await.into_iter().flatten().collect();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| member.version == "3.6.16"), "{members:?}");
    let lost = etcd.lost(&tally.acknowledged).await?;
    judge_tally(what, &tally, &lost, BEARABLE);
    Ok(())
}

/// Three ready nodes of a fleet, and the operator that works there.
async fn three(name: &str) -> Result<(Place<'static>, Etcd, tokio::process::Child), Error> {
    let cluster = Cluster::shared().await;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || add_etcd(&images)).await??;
    let place = cluster.namespace(name).await;
    let operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
    place.apply("etcd/fleet.yaml").await?;
    place.until(FLEET, applied).await?;
    let etcd = Etcd::new((0..3).map(|n| cluster.address(&place.ns, &format!("etcd-{n}-0"))));
    Ok((place, etcd, operator))
}

const FLEET: (&str, &str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment", "etcd");

#[tokio::test(flavor = "multi_thread")]
async fn windlass_rolls_etcd_and_loses_nothing() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (place, etcd, _operator) = three("etcd-fleet").await?;
    let writer = Writer::start(etcd.clone());
    tokio::time::sleep(Duration::from_secs(3)).await;
    writer.forget_gaps();
    let image = json!({"spec": {"template": {"spec": {"image": ETCD[1]}}}}).to_string();
    place.kubectl(&["patch", "nd", "etcd", "--type=merge", "-p", &image]).await?;
    let fleet = place.until(FLEET, applied).await?;
    assert_eq!(fleet["status"]["history"][0]["outcome"], "Complete", "{:#}", fleet["status"]["history"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    judge("Windlass, InPlace", writer.stop().await, &etcd).await
}
