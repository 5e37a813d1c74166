//! Windlass in front of an etcd that runs already, as a plain StatefulSet of a chart: it is adopted, updated, rolled back
//! and released under a continuous writer.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use windlass_process_kubelet::Image;

use crate::e2e::commands::windlass_plain;
use crate::systems::etcd_rolled::judge;
use crate::systems::rolled::{ALONE, CALM};
use windlass_harness::controlplane::Error;
use windlass_harness::kit::{Wave, condition};
use windlass_harness::systems::cluster::{Cluster, Place};
use windlass_harness::systems::etcd::Etcd;
use windlass_harness::systems::programs::{ETCD, add_etcd};
use windlass_harness::systems::writer::Writer;

/// A version that starts and fails.
const BROKEN: &str = "registry.example/etcd:3.7.0";
const MEMBERS: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];
/// No step loses the quorum, so a gap is at most an election.
const BEARABLE: Duration = Duration::from_secs(5);

const SET: (&str, &str, &str) = ("apps/v1", "StatefulSet", "etcd");
const ROLLOUT: (&str, &str, &str) = ("windlass.dev/v1alpha1", "StatefulSetRollout", "etcd");

/// A namespace in which etcd runs, and a client.
async fn running(namespace: &str) -> Result<(Place<'static>, Etcd), Error> {
    let cluster = Cluster::shared().await;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || add_etcd(&images)).await??;
    cluster.images.add(BROKEN, Image::of("etcd", "/bin/false"));
    let place = cluster.namespace(namespace).await;
    let chart = include_str!("etcd_held.yaml").replace("NAMESPACE", &place.ns);
    let apply = ["-n", &*place.ns, "apply", "--validate=strict", "-f", "-"];
    cluster.cp.kubectl_with(&apply, &chart).await.ok();
    place.until(SET, |set| set["status"]["readyReplicas"] == 3).await?;
    let etcd = Etcd::new(MEMBERS.map(|pod| cluster.address(&place.ns, pod)));
    Ok((place, etcd))
}

/// A pod as it is: its UID, its image, and how often its container was restarted.
type Life = (String, String, i64);

async fn lives(place: &Place<'_>) -> Result<BTreeMap<String, Life>, Error> {
    let mut lives = BTreeMap::new();
    for name in MEMBERS {
        let pod = place.get("v1", "Pod", name).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or_default();
        let image = text(&pod["spec"]["containers"][0]["image"]);
        lives.insert(name.to_owned(), (text(&pod["metadata"]["uid"]), image, restarts));
    }
    Ok(lives)
}

/// Runs a command of Windlass, which succeeds.
async fn windlass(place: &Place<'_>, words: &[&str]) {
    let words = [words, &["-n", &*place.ns]].concat();
    let ran = windlass_plain(place.cluster.cp.kubeconfig(), &words).await;
    assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.out, ran.err);
}

/// Changes the image in the template, as somebody does who knows nothing of Windlass.
async fn set_image(place: &Place<'_>, image: &str) -> Result<(), Error> {
    place.kubectl(&["set", "image", "statefulset/etcd", &format!("etcd={image}")]).await.map(drop)
}

/// Waits until all members run what the template says.
async fn at_rest(place: &Place<'_>, image: &str) -> Result<(), Error> {
    // The rollout of another template has not ended before it has begun.
    let is_observed = |set: &Value| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] == image
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
    };
    let set = place.until(SET, is_observed).await?;
    let is_at_rest = |rollout: &Value| {
        condition(rollout, "UpToDate") == "True/Applied"
            && condition(rollout, "Held") == "True/Held"
            && rollout["status"]["rollout"].is_null()
            && rollout["status"]["readyReplicas"] == 3
            && rollout["status"]["statefulSets"][0]["currentRevision"] == set["status"]["updateRevision"]
    };
    place.until(ROLLOUT, is_at_rest).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_etcd_is_rolled_out_and_back_without_data_loss() -> Result<(), Error> {
    let _alone = ALONE.lock().await;
    let (place, etcd) = running("etcd-held").await?;
    let written = place.get(SET.0, SET.1, SET.2).await?["spec"]["updateStrategy"].clone();
    let before = lives(&place).await?;
    let writer = Writer::start(etcd.clone());
    tokio::time::sleep(CALM).await;

    let _operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
    windlass(&place, &["adopt", "sts/etcd", "--apply"]).await;
    at_rest(&place, ETCD[0]).await?;
    tokio::time::sleep(CALM).await;
    assert_eq!(lives(&place).await?, before, "nothing restarts when it is adopted");

    let wave = Wave::over(place.api("v1", "Pod"), &MEMBERS).await;
    set_image(&place, ETCD[1]).await?;
    at_rest(&place, ETCD[1]).await?;
    let seen = wave.at_most(1).await;
    assert_eq!(seen.went, ["etcd-2", "etcd-1", "etcd-0"], "{}", seen.log.join("\n"));
    let updated = lives(&place).await?;
    for (name, (uid, image, restarts)) in &updated {
        assert_ne!(*uid, before[name].0, "{name}");
        assert_eq!((image.as_str(), *restarts), (ETCD[1], 0), "{name}");
    }
    for member in etcd.members().await {
        assert!(member.as_ref().is_some_and(|m| ETCD[1].ends_with(&m.version)), "{member:?}");
    }

    let wave = Wave::over(place.api("v1", "Pod"), &MEMBERS).await;
    set_image(&place, BROKEN).await?;
    let is_broken = |rollout: &Value| {
        rollout["status"]["rollout"]["unconverged"][0]["reason"] == "CrashLoopBackOff"
            && rollout["status"]["rollout"]["nodes"]["failed"] == 1
    };
    let broken = place.until(ROLLOUT, is_broken).await?;
    assert_eq!(broken["status"]["nodes"][0]["name"], "etcd-2");
    tokio::time::sleep(CALM).await;
    let held = lives(&place).await?;
    assert_eq!(held["etcd-2"].1, BROKEN);
    windlass(&place, &["abort", "ssr/etcd", "--rollback"]).await;
    let is_back = |rollout: &Value| {
        condition(rollout, "UpToDate") == "False/RolledBack" && rollout["status"]["readyReplicas"] == 3
    };
    place.until(ROLLOUT, is_back).await?;
    let back = lives(&place).await?;
    assert_eq!((back["etcd-2"].1.as_str(), back["etcd-2"].2), (ETCD[1], 0));
    for name in ["etcd-0", "etcd-1"] {
        assert_eq!(held[name], updated[name], "the first broken pod stops the rollout");
        assert_eq!(back[name], updated[name], "only the broken pod goes back");
    }
    let set = place.get(SET.0, SET.1, SET.2).await?;
    assert_eq!(
        set["spec"]["template"]["spec"]["containers"][0]["image"], BROKEN,
        "the template is its owner's"
    );

    set_image(&place, ETCD[1]).await?;
    at_rest(&place, ETCD[1]).await?;
    place.kubectl(&["delete", "ssr/etcd"]).await?;
    tokio::time::sleep(CALM).await;
    let set = place.get(SET.0, SET.1, SET.2).await?;
    assert_eq!(set["spec"]["updateStrategy"], written);
    assert!(set["metadata"]["annotations"].get("windlass.dev/update-strategy").is_none(), "{set:#}");
    assert_eq!(lives(&place).await?, back, "nothing restarts when it is released");

    let seen = wave.at_most(1).await;
    assert_eq!(seen.went, ["etcd-2"], "{}", seen.log.join("\n"));
    let tally = writer.stop().await;
    judge("Windlass, in front of a StatefulSet", ETCD[1], &tally, &etcd, BEARABLE).await
}
