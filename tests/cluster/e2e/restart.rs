//! A restart below the partition.

use serde_json::json;

use windlass_harness::kit::tools::outcomes;
use windlass_harness::kit::{Wave, World, condition, fleet, with};

const RESTART: &str = "windlass.dev/restartedAt";

#[tokio::test(flavor = "multi_thread")]
async fn restart_reaches_held_pods_once_the_partition_is_lowered() {
    let world = World::new("heldrestart").await;
    let held = |below: i64| json!({"spec": {"updateStrategy": {"type": "InPlace", "inPlace": {"partition": below}}}});
    world.settled_fleet(with(fleet(3, "db:1"), &held(2))).await;
    let before = world.pod_uids().await;
    world.annotate_fleet(RESTART, json!("2030-01-31T12:00:00Z")).await;
    let kept = world
        .until_db("the partition holds it", |db| condition(db, "RolloutInProgress") == "True/PartitionHeld")
        .await;
    assert_eq!(kept["status"]["rollout"]["nodes"]["updated"], 1, "{kept:#}");
    world.until_quiet().await;
    let meanwhile = world.pod_uids().await;
    assert_eq!(meanwhile[..2], before[..2], "they keep what they run");
    assert_ne!(meanwhile[2], before[2]);
    let wave = Wave::watch(&world, 3).await;
    world.patch_fleet(held(0)).await;
    let done = world.until_db("all have restarted", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    wave.at_most(1).await;
    let after = world.pod_uids().await;
    assert!(after[0] != before[0] && after[1] != before[1] && after[2] == meanwhile[2], "{after:?}");
}
