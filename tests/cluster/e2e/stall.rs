//! A rollout without progress reports it, continues when it can, and is rolled back if that was asked for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use windlass_harness::kit::tools::{digits, image_of, message, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet, is_applied};

fn impatient(replicas: i64, image: &str, on_stall: &str) -> Value {
    let mut fleet = fleet(replicas, image);
    fleet["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(2);
    fleet["spec"]["updateStrategy"]["onStall"] = json!(on_stall);
    fleet
}

fn is_stalled(fleet: &Value) -> bool {
    condition(fleet, "Stalled") == "True/NoProgress"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_is_told_once_with_node_and_cause_and_ends_by_itself_when_the_cause_does() {
    let world = World::new("stall").await;
    world.fleet(impatient(3, "db:1", "Hold")).await;
    world.until_applied().await;
    let before = world.pod_uids().await;
    world.set_image("db:2-nope").await;
    let stalled = world.until_db("it stalls", is_stalled).await;
    assert_eq!(condition(&stalled, "UpToDate"), "False/Stalled");
    assert_eq!(condition(&stalled, "RolloutInProgress"), "True/Stalled");
    assert_eq!(condition(&stalled, "Reconciling"), "False/Settled");
    assert_eq!(stalled["status"]["phase"], "Upgrading");
    let sentence = message(&stalled, "Stalled");
    assert!(sentence.contains("db-2") && sentence.contains("ImagePullBackOff"), "{sentence}");
    assert_eq!(stalled["status"]["rollout"]["unconverged"][0]["name"], "db-2", "{stalled:#}");
    assert_eq!(stalled["status"]["rollout"]["unconverged"][0]["reason"], "ImagePullBackOff");
    let note = world.told_once("db", "RolloutStalled").await;
    assert!(note.contains("db-2") && note.contains("ImagePullBackOff"), "{note}");
    world.throughout(Duration::from_secs(3), &world.fleets(), "db", "it stays stalled", is_stalled).await;
    assert_eq!(world.notes_about("db", "RolloutStalled").await.len(), 1, "one stall is told once");
    assert_eq!(world.pod_uids().await[..2], before[..2], "the wave holds: the others stay");

    for pod in ["db-0-0", "db-1-0", "db-2-0"] {
        world.steer(pod, "ready").await;
    }
    let done = world.until_applied().await;
    assert_eq!(condition(&done, "Stalled"), "False/Progressing");
    assert_eq!(plan_id(&done), plan_id(&stalled), "the same plan goes on");
    assert_eq!(world.images().await, ["db:2-nope"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_rollout_that_is_to_be_rolled_back_is_and_is_tried_again_only_by_a_retry() {
    let world = World::new("back").await;
    world.fleet(impatient(3, "db:1", "Rollback")).await;
    let first = world.until_applied().await;
    let before = world.pod_uids().await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2-nope").await;
    let back =
        world.until_db("it is rolled back", |db| condition(db, "UpToDate") == "False/RolledBack").await;
    assert_eq!(outcomes(&back), ["RolledBack", "Complete"], "{back:#}");
    let (rejected, wanted) = (&back["status"]["rejected"], &back["status"]["requestedRolloutHash"]);
    assert_eq!(rejected["outcome"], "RolledBack");
    assert_eq!(rejected["hash"], *wanted);
    let history = &back["status"]["history"];
    assert_eq!(rejected["planID"], history[0]["planID"]);
    assert_eq!(history[0]["targetHash"], *wanted);
    assert_eq!(history[1]["targetHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_ne!(history[0]["planID"], history[1]["planID"], "a plan of its own");
    assert_eq!(back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(condition(&back, "Stalled"), "True/RolledBack");
    assert_eq!(condition(&back, "RolloutInProgress"), "False/RolledBack");
    assert_eq!(back["spec"]["template"]["spec"]["image"], "db:2-nope", "the spec is not touched");
    assert_eq!(world.images().await, ["db:1"; 3]);
    assert_eq!(world.pod_uids().await[..2], before[..2], "only the broken node was replaced");
    let note = world.told_once("db", "RolledBack").await;
    assert!(note.contains(digits(wanted)), "{note} names {wanted}");
    world.writes_nothing_for(Duration::from_secs(4)).await;

    world.patch_fleet(json!({"spec": {"replicas": 4}})).await;
    world.until_pod_runs("db-3-0", "db:1").await;
    let still = world.until_db("four are ready", |db| db["status"]["readyReplicas"] == 4).await;
    assert_eq!(condition(&still, "UpToDate"), "False/RolledBack");

    for pod in ["db-0-0", "db-1-0", "db-2-0", "db-3-0"] {
        world.steer(pod, "ready").await;
    }
    world.annotate_fleet("windlass.dev/retry", json!("0123456789")).await;
    let is_rejected = |db: &Value| condition(db, "UpToDate") == "False/RolledBack";
    world
        .throughout(Duration::from_secs(1), &world.fleets(), "db", "another plan is named", is_rejected)
        .await;
    // From here on it gets the time that it needs on a busy machine.
    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 60}}})).await;
    world.annotate_fleet("windlass.dev/retry", rejected["planID"].clone()).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["RolledBack", "Complete", "Complete"]);
    assert_ne!(plan_id(&done), rejected["planID"].as_str().unwrap(), "a retry has a plan ID of its own");
    assert!(done["status"]["rejected"].is_null(), "{done:#}");
    assert_eq!(world.images().await, ["db:2-nope"; 4]);
    world.writes_nothing_for(Duration::from_secs(2)).await;
    sampler.finish().await.at_most(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_has_completed_yet_a_stall_is_held_and_a_fix_goes_over_it() {
    let world = World::new("never").await;
    world.fleet(impatient(2, "db:1-nope", "Rollback")).await;
    // One fails before the other: the fleet is Degraded until then.
    let failed = world.until_db("its nodes fail", |db| db["status"]["phase"] == "Failed").await;
    assert_eq!(condition(&failed, "Ready"), "False/NodesFailed");
    assert!(failed["status"]["plan"].is_null(), "the first creation has no plan: {failed:#}");
    let sentence = message(&failed, "Ready");
    assert!(sentence.contains("db-0") && sentence.contains("ImagePullBackOff"), "{sentence}");
    world.set_image("db:2-nope").await;
    world.until_db("it stalls", is_stalled).await;
    world
        .throughout(Duration::from_secs(3), &world.fleets(), "db", "it holds", |db| {
            is_stalled(db) && outcomes(db).is_empty()
        })
        .await;
    world.set_image("db:3").await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Superseded", "Complete"], "{done:#}");
    assert_eq!(world.images().await, ["db:3"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_stalls_itself_is_held() {
    let world = World::new("stuck").await;
    world.fleet(impatient(2, "db:1", "Rollback")).await;
    world.until_applied().await;
    let before = world.pod_uids().await;
    world.set_image("db:2-nope").await;
    world.until(&world.pods(), "db-1-0", "the node gets the image", |p| image_of(p) == "db:2-nope").await;
    world.steer("db-1-0", "crash").await;
    let held =
        world.until_db("the way back stalls", |db| is_stalled(db) && outcomes(db) == ["RolledBack"]).await;
    assert_eq!(held["status"]["rollout"]["targetHash"], held["status"]["lastCompletedRolloutHash"]);
    world
        .throughout(Duration::from_secs(3), &world.fleets(), "db", "it holds", |db| {
            outcomes(db) == ["RolledBack"] && plan_id(db) == plan_id(&held)
        })
        .await;
    assert_eq!(world.pod_uids().await[0], before[0], "the other node stays");
    world.steer("db-1-0", "default").await;
    let back = world.until_db("it is back", |db| outcomes(db) == ["RolledBack", "Complete"]).await;
    assert_eq!(condition(&back, "UpToDate"), "False/RolledBack");
    assert_eq!(world.images().await, ["db:1"; 2]);
    assert!(!is_applied(&back));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stall_in_one_rollout_is_told_too() {
    let world = World::new("twice").await;
    world.fleet(impatient(2, "db:1", "Hold")).await;
    world.until_applied().await;
    world.set_image("db:2-nope").await;
    let first = world.told_once("db", "RolloutStalled").await;
    assert!(first.contains("db-1"), "{first}");
    world.steer("db-1-0", "ready").await;
    world
        .until_db("the next node stalls", |db| is_stalled(db) && message(db, "Stalled").contains("db-0"))
        .await;
    // An event comes after the status.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let notes = world.notes_about("db", "RolloutStalled").await;
    assert_eq!(notes.len(), 2, "{notes:#?}");
    assert!(notes.iter().any(|note| note.contains("db-0")), "{notes:#?}");
    world.steer("db-0-0", "ready").await;
    world.until_applied().await;
}
