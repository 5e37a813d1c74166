//! etcd as a plain StatefulSet, for comparison with Windlass.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{Cluster, Place};
use windlass_harness::systems::etcd::Etcd;
use windlass_harness::systems::programs::add_etcd;
use windlass_harness::systems::writer::{Store, Writer};

/// Three ready members of a StatefulSet.
pub async fn three(name: &str) -> Result<(Place<'static>, Etcd), Error> {
    let cluster = Cluster::shared().await;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || add_etcd(&images)).await??;
    let place = cluster.namespace(name).await;
    place.apply("etcd/statefulset.yaml").await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        place.until_ready(pod, &Value::Null).await?;
    }
    let etcd = Etcd::new((0..3).map(|n| cluster.address(&place.ns, &format!("etcd-{n}"))));
    Ok((place, etcd))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn three_members_agree_on_a_leader_and_survive_each_pods_deletion() -> Result<(), Error> {
    let (place, mut etcd) = three("etcd-set").await?;
    let members: Vec<_> = etcd.members().await.into_iter().flatten().collect();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| member.has_leader && member.version == "3.6.15"), "{members:?}");
    assert_eq!(members.iter().filter(|member| member.leads).count(), 1, "{members:?}");
    let mut written = BTreeMap::new();
    for number in 0..20 {
        written.insert(number, etcd.write(number).await?);
    }
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        let before = place.get("v1", "Pod", pod).await?;
        place.kubectl(&["delete", "pod", pod, "--wait=false"]).await?;
        let after = place.until_ready(pod, &before["metadata"]["uid"]).await?;
        assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
        // The others would refuse a member with an empty folder: it kept its identity.
        let told = place.kubectl(&["logs", pod]).await?;
        assert!(told.contains("restarting local member"), "{told}");
    }
    assert_eq!(etcd.lost(&written).await?, BTreeSet::new());
    // An unwritten key counts as missing, and so does one with another value.
    written.extend([(20, "w/never".to_owned()), (21, written[&0].clone())]);
    assert_eq!(etcd.lost(&written).await?, BTreeSet::from([20, 21]));
    Ok(())
}

/// Rolls out an image, and returns the longest time without an acknowledged write.
pub async fn rolled(place: &Place<'_>, image: &str, writer: &Writer) -> Result<Duration, Error> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    writer.forget_gaps();
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "etcd", "image": image}]}}}});
    place.kubectl(&["patch", "statefulset", "etcd", "-p", &image.to_string()]).await?;
    place.kubectl(&["rollout", "status", "statefulset/etcd", "--timeout=120s"]).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(writer.tally().longest_gap)
}
