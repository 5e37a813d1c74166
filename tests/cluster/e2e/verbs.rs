//! The verbs on a rollout: pause, abort, retry, skip. Repeating one changes nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use windlass_harness::kit::tools::{image_of, is_up, message, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet};

fn is_paused(db: &Value) -> bool {
    db["status"]["phase"] == "Paused" && db["status"]["observedGeneration"] == db["metadata"]["generation"]
}

async fn pause(world: &World, paused: bool) {
    world.patch_fleet(json!({"spec": {"paused": paused}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lets_grants_be_finished_and_gives_none_until_it_is_over() {
    let world = World::new("pause").await;
    let mut wanted = fleet(3, "db:1");
    wanted["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(2);
    wanted["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
    world.fleet(wanted).await;
    world.until_applied().await;
    let before = world.uids(&world.pods()).await;
    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 20}}})).await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2-slow").await;
    world.until(&world.pods(), "db-2-0", "it moves", |p| image_of(p) == "db:2-slow").await;
    pause(&world, true).await;
    // From here on the clock would run out soon if it were not stopped.
    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 2}}})).await;
    let paused = world.until_db("it is paused", is_paused).await;
    assert_eq!(condition(&paused, "RolloutInProgress"), "True/Paused");
    world.until_pod_runs("db-2-0", "db:2-slow").await;
    world
        .until(&world.nodes(), "db-2", "its grant is finished", |n| {
            n["status"]["spentGrantID"] == n["spec"]["grantID"] && n["status"]["plan"]["state"] == "Complete"
        })
        .await;

    world.patch_fleet(json!({"spec": {"replicas": 4}})).await;
    world.until_pod_runs("db-3-0", "db:1").await;
    let still = |db: &Value| is_paused(db) && condition(db, "Stalled") == "False/Progressing";
    world.until_db("the new node is counted", |db| still(db) && db["status"]["readyReplicas"] == 4).await;
    world.throughout(Duration::from_secs(3), &world.fleets(), "db", "it is paused, not stalled", still).await;
    let meanwhile = world.uids(&world.pods()).await;
    for pod in ["db-0-0", "db-1-0"] {
        assert_eq!(meanwhile[pod], before[pod], "{pod} is not touched while it is paused");
    }

    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 30}}})).await;
    pause(&world, false).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "the same plan goes on: {done:#}");
    assert_eq!(plan_id(&done), plan_id(&paused));
    assert_eq!(world.images().await, ["db:2-slow"; 4]);
    sampler.finish().await.at_most(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_leaves_nodes_at_what_they_run_and_rejects_the_target_until_a_retry_names_the_plan() {
    let world = World::new("abort").await;
    world.fleet(fleet(3, "db:1")).await;
    let first = world.until_applied().await;
    world.set_image("db:2-slow").await;
    let rolling = world
        .until_db("one node is done, the next on its way", |db| {
            db["status"]["rollout"]["nodes"]["updated"] == 1 && db["status"]["rollout"]["nodes"]["ready"] == 2
        })
        .await;
    world.annotate_fleet("windlass.dev/abort", json!("0123456789")).await;
    world
        .throughout(Duration::from_millis(500), &world.fleets(), "db", "another plan is named", |db| {
            db["status"]["plan"]["state"] == "Active"
        })
        .await;
    let aborted_plan = plan_id(&rolling);
    world.annotate_fleet("windlass.dev/abort", json!(aborted_plan)).await;
    let aborted = world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    assert_eq!(aborted["status"]["plan"]["state"], "Aborted");
    assert_eq!(outcomes(&aborted), ["Aborted"]);
    assert_eq!(condition(&aborted, "Stalled"), "True/Aborted");
    assert_eq!(condition(&aborted, "RolloutInProgress"), "False/RolloutAborted");
    assert!(aborted["status"]["rollout"].is_null(), "{aborted:#}");
    assert_eq!(aborted["status"]["rejected"]["planID"], json!(aborted_plan));
    assert_eq!(aborted["status"]["rejected"]["hash"], aborted["status"]["requestedRolloutHash"]);
    assert_eq!(aborted["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert!(message(&aborted, "UpToDate").contains(&aborted_plan), "it says what a retry has to name");
    world.told_once("db", "RolloutAborted").await;
    world.until_db("all are ready", |db| db["status"]["readyReplicas"] == 3).await;
    let left = world.images().await;
    assert_eq!((left[0].as_str(), left[2].as_str()), ("db:1", "db:2-slow"));
    let pods = world.pod_uids().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
    assert_eq!(world.pod_uids().await, pods, "nodes stay at what they run");
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["spec"]["grantedHash"], node["status"]["podTemplateHash"], "{node:#}");
    }

    world.delete(&world.nodes(), "db-0").await;
    world.patch_fleet(json!({"spec": {"replicas": 4}})).await;
    world
        .until(&world.pods(), "db-0-0", "a lost node is back", |p| {
            is_up(p) && p["metadata"]["uid"] != json!(pods[0])
        })
        .await;
    world.until_pod_runs("db-3-0", "db:1").await;
    assert_eq!(
        world.images().await[0],
        "db:1",
        "while a target is rejected, new nodes get what last completed"
    );
    assert_eq!(outcomes(&world.db().await), ["Aborted"]);

    world.annotate_fleet("windlass.dev/retry", json!(aborted_plan)).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Aborted", "Complete"], "{done:#}");
    assert_ne!(plan_id(&done), aborted_plan);
    assert!(done["status"]["rejected"].is_null());
    assert_eq!(world.images().await, ["db:2-slow"; 4]);
    assert_eq!(world.pods_by_name().await["db-2-0"]["metadata"]["uid"], json!(pods[2]), "it ran the target");
    world.annotate_fleet("windlass.dev/retry", Value::Null).await;
    world.annotate_fleet("windlass.dev/retry", json!(aborted_plan)).await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
}
