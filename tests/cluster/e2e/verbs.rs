//! The verbs on a rollout: pause, abort, retry, skip. Repeating one changes nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use windlass_harness::kit::tools::{digits, image_of, is_up, message, outcomes, plan_id};
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
async fn the_time_of_a_pause_does_not_count_as_a_stall_when_it_is_over() {
    let world = World::new("clock").await;
    let mut wanted = fleet(2, "db:1");
    wanted["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(3);
    wanted["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
    world.fleet(wanted).await;
    world.until_applied().await;
    pause(&world, true).await;
    world.until_db("it is paused", is_paused).await;
    world.set_image("db:2").await;
    world.until_db("the plan is recorded", |db| db["status"]["plan"]["state"] == "Active").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    pause(&world, false).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "{done:#}");
    assert_eq!(world.images().await, ["db:2"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_target_in_a_pause_is_recorded_and_rolled_out_when_it_is_over() {
    let world = World::new("record").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.pod_uids().await;
    pause(&world, true).await;
    world.until_db("it is paused", is_paused).await;
    world.set_image("db:2").await;
    let second = world.until_db("db:2 is recorded", |db| db["status"]["plan"]["state"] == "Active").await;
    world.set_image("db:3").await;
    let third = world
        .until_db("db:3 is recorded", |db| {
            db["status"]["plan"]["state"] == "Active" && outcomes(db) == ["Superseded"]
        })
        .await;
    assert_ne!(plan_id(&third), plan_id(&second));
    assert_eq!(third["status"]["rollout"]["targetHash"], third["status"]["requestedRolloutHash"]);
    let note = world.told_once("db", "RolloutSuperseded").await;
    for hash in [&second["status"]["requestedRolloutHash"], &third["status"]["requestedRolloutHash"]] {
        assert!(note.contains(digits(hash)), "{note} names {hash}");
    }
    world
        .until_db("it says what it waits for", |db| {
            db["status"]["plan"]["tasks"][0]["message"].as_str().is_some_and(|m| m.contains("paused"))
        })
        .await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
    assert_eq!(world.pod_uids().await, before, "nothing moves while it is paused");
    pause(&world, false).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:3"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_lost_in_a_pause_comes_back_at_what_last_completed() {
    let world = World::new("lost").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.uids(&world.pods()).await;
    pause(&world, true).await;
    world.set_image("db:2").await;
    world.until_db("the plan is recorded", |db| db["status"]["plan"]["state"] == "Active").await;
    world.delete(&world.nodes(), "db-1").await;
    world
        .until(&world.pods(), "db-1-0", "its pod is back", |p| {
            is_up(p) && p["metadata"]["uid"] != before["db-1-0"]
        })
        .await;
    assert_eq!(world.images().await, ["db:1"; 2]);
    pause(&world, false).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 2]);
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

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_rollout_of_a_broken_image_gives_way_to_a_fix() {
    let world = World::new("fix").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    world.set_image("db:2-nope").await;
    let broken = world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&broken))).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.images().await, ["db:1", "db:2-nope"], "an abort takes nothing back");
    world.set_image("db:3").await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Aborted", "Complete"]);
    assert_eq!(world.images().await, ["db:3"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_target_that_is_taken_back_brings_the_moved_nodes_back() {
    let world = World::new("revert").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.pod_uids().await;
    world.set_image("db:2-nope").await;
    let broken = world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&broken))).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    world.set_image("db:1").await;
    let done = world.until_applied().await;
    assert!(done["status"]["rejected"].is_null(), "{done:#}");
    assert_eq!(world.images().await, ["db:1"; 2]);
    assert_eq!(world.pod_uids().await[0], before[0], "the node that never moved is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_of_a_rollout_in_place_is_skipped_and_the_refusal_is_told_once() {
    let world = World::new("skip").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    world.set_image("db:2-nope").await;
    let broken = world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    let task = broken["status"]["plan"]["tasks"][0]["id"].clone();
    world.annotate_fleet("windlass.dev/skip", task.clone()).await;
    let note = world.told_once("db", "SkipRefused").await;
    assert!(note.contains(task.as_str().unwrap()), "{note}");
    let last = world.get(&world.nodes(), "db-1").await;
    let replace =
        last["status"]["plan"]["tasks"].as_array().unwrap().iter().find(|t| t["type"] == "replace-pod");
    let replace = replace.expect("a task")["id"].clone();
    world.annotate(&world.nodes(), "db-1", "windlass.dev/skip", replace).await;
    world.told_once("db-1", "SkipRefused").await;
    world.annotate_fleet("example.dev/touched", json!("again")).await;
    world.annotate(&world.nodes(), "db-1", "example.dev/touched", json!("again")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.told_once("db", "SkipRefused").await;
    world.told_once("db-1", "SkipRefused").await;
    let after = world.db().await;
    assert_eq!(after["status"]["plan"]["tasks"][0]["state"], "Running", "{after:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_grants_a_node_that_has_not_moved_yet_what_it_runs() {
    abort_before_anything_moved("stay", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_takes_back_what_a_plan_granted_that_was_superseded_while_the_fleet_was_paused() {
    abort_before_anything_moved("staytwo", true).await;
}

async fn abort_before_anything_moved(prefix: &str, superseded: bool) {
    let world = World::new(prefix).await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.pod_uids().await;
    // The node is granted and its template written, and its pod cannot be replaced.
    world.allow_pod_deletes(false).await;
    world.set_image("db:2").await;
    let image = |set: &Value| set["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    world.until(&world.sets(), "db-1", "its template is written", |s| image(s) == "db:2").await;
    if superseded {
        world.patch_fleet(json!({"spec": {"paused": true, "template": {"spec": {"image": "db:3"}}}})).await;
        let third = |db: &Value| db["status"]["history"].as_array().is_some_and(|h| h.len() == 1);
        world.until_db("another plan took its place and gave no grant", third).await;
    }
    let rolling = world.db().await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&rolling))).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    world.until(&world.sets(), "db-1", "its template is as it was", |s| image(s) == "db:1").await;
    world
        .until(&world.nodes(), "db-1", "it is granted what it runs", |n| {
            n["spec"]["grantedHash"] == n["status"]["podTemplateHash"]
                && n["status"]["spentGrantID"] == n["spec"]["grantID"]
        })
        .await;
    world.allow_pod_deletes(true).await;
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.pod_uids().await, before, "nothing moves any more");
    let expected: &[&str] = if superseded { &["Superseded", "Aborted"] } else { &["Aborted"] };
    assert_eq!(outcomes(&world.db().await), expected);
}
