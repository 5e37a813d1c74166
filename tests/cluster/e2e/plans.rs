//! A persisted plan that this version does not understand fails with a reason; everything else continues.

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition, fleet};

/// Two fleets at rest, and no operator.
async fn two_fleets() -> World {
    let mut world = World::new("plans").await;
    let mut other = fleet(1, "other:1");
    other["metadata"]["name"] = json!("other");
    world.fleet(other).await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.kill_operator().await;
    world
}

async fn another_fleet_rolls(world: &World) {
    let change = json!({"spec": {"template": {"spec": {"image": "other:2"}}}});
    world.patch(&world.fleets(), "other", change).await;
    let rolled = |n: &Value| n["status"]["currentImage"] == "other:2" && n["status"]["phase"] == "Running";
    world.until(&world.nodes(), "other-0", "another fleet goes on", rolled).await;
}

fn task(plan: &str, type_: &str) -> Value {
    json!({"id": format!("{plan}-0"), "type": type_, "state": "Running", "params": {"depth": 3}})
}

#[allow(clippy::needless_pass_by_value, reason = "it is written where it is used")]
fn plan(id: &str, hash: &Value, tasks: Value) -> Value {
    let started = "2030-01-01T00:00:00Z";
    json!({"id": id, "recipe": "InPlace", "targetHash": hash, "state": "Active", "startedAt": started, "tasks": tasks})
}

fn rollout(hash: &Value, revision: &Value) -> Value {
    json!({
        "strategy": "InPlace", "targetHash": hash, "targetRevision": revision, "stage": "Updating",
        "startedAt": "2030-01-01T00:00:00Z", "lastProgressAt": "2030-01-01T00:00:00Z",
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleets_plan_with_an_unknown_task_fails_and_another_fleet_goes_on() {
    let mut world = two_fleets().await;
    let (db, pods) = (world.db().await, world.pod_uids().await);
    let status = &db["status"];
    let (hash, revision) = (&status["requestedRolloutHash"], &status["updateRevision"]);
    let strange = plan("0123456789", hash, json!([task("0123456789", "drain-the-sea")]));
    let patch = json!({"status": {"plan": strange, "rollout": rollout(hash, revision)}});
    world.patch_status(&world.fleets(), "db", patch).await;
    world.start_operator(&[]).await;
    another_fleet_rolls(&world).await;
    let failed = |db: &Value| condition(db, "UpToDate") == "False/PlanFailed";
    let db = world.until_db("the plan failed", failed).await;
    assert_eq!(db["status"]["plan"]["state"], "Failed", "{db:#}");
    assert!(db["status"]["plan"]["failure"].as_str().unwrap().contains("drain-the-sea"), "{db:#}");
    assert_eq!(db["status"]["plan"]["tasks"][0]["params"], json!({"depth": 3}), "kept as it was: {db:#}");
    assert_eq!(condition(&db, "Stalled"), "True/PlanFailed", "{db:#}");
    assert_eq!(condition(&db, "RolloutInProgress"), "False/RolloutFailed", "{db:#}");
    assert_eq!(db["status"]["history"][0]["outcome"], "Failed", "{db:#}");
    assert!(world.until_event("db", "RolloutFailed").await.contains("drain-the-sea"));
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await[..2], pods[..2], "nothing of it is touched");

    let retry = json!({"metadata": {"annotations": {"windlass.dev/retry": "0123456789"}}});
    world.patch_fleet(retry).await;
    let done = world.until_applied().await;
    assert_ne!(done["status"]["plan"]["id"], "0123456789", "{done:#}");
    assert_eq!(condition(&done, "Stalled"), "False/Progressing", "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleets_plan_that_cannot_be_read_fails_and_another_fleet_goes_on() {
    let mut world = two_fleets().await;
    let (db, pods) = (world.db().await, world.pod_uids().await);
    let (hash, revision) = (&db["status"]["requestedRolloutHash"], &db["status"]["updateRevision"]);
    let truncated = json!({"id": "0123456789", "state": "Active", "tasks": [{"id": "0123456789-0"}]});
    let patch = json!({"status": {"plan": truncated, "rollout": rollout(hash, revision)}});
    world.patch_status(&world.fleets(), "db", patch).await;
    world.start_operator(&[]).await;
    another_fleet_rolls(&world).await;
    let failed = |db: &Value| condition(db, "UpToDate") == "False/PlanFailed";
    let db = world.until_db("the plan failed", failed).await;
    assert!(db["status"]["plan"]["failure"].as_str().unwrap().contains("cannot be read"), "{db:#}");
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await[..2], pods[..2], "nothing of it is touched");
    world.set_image("db:2").await;
    world.until_applied().await;
    assert_eq!(world.images().await[..2], ["db:2", "db:2"], "a new target is tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_plan_that_is_strange_fails_and_is_tried_again_and_its_fleet_goes_on() {
    for strange in [
        json!({"id": "0123456789", "state": "Active", "tasks": [{"id": "0123456789-0"}]}),
        plan("0123456789", &json!("v1:00"), json!([task("0123456789", "drain-the-sea")])),
        json!({"id": "0123456789", "state": "Paused", "tasks": 7, "startedAt": "2030-01-01T00:00:00Z"}),
    ] {
        let mut world = two_fleets().await;
        let pods = world.pod_uids().await;
        let strange = if strange["recipe"].is_null() {
            strange
        } else {
            let node = world.get(&world.nodes(), "db-1").await;
            let mut strange = strange;
            strange["recipe"] = json!("RestartNode");
            strange["targetHash"] = node["spec"]["grantedHash"].clone();
            strange
        };
        let patched =
            world.try_patch_status(&world.nodes(), "db-1", json!({"status": {"plan": strange}})).await;
        if patched.is_err() {
            // The schema refuses it, so it cannot exist.
            continue;
        }
        world.start_operator(&[]).await;
        another_fleet_rolls(&world).await;
        let failed = |n: &Value| {
            n["status"]["history"]
                .as_array()
                .is_some_and(|h| h.iter().any(|e| e["outcome"] == "Failed" && e["planID"] == "0123456789"))
        };
        world.until(&world.nodes(), "db-1", "the plan failed", failed).await;
        world.until_event("db-1", "PlanFailed").await;
        world.set_image("db:2").await;
        world.until_applied().await;
        assert_eq!(world.images().await[..2], ["db:2", "db:2"]);
        assert_ne!(world.pod_uids().await, pods);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_plan_of_another_version_is_left_as_it_is() {
    let mut world = two_fleets().await;
    let old = json!({"id": "0123456789", "recipe": "Sideways", "state": "Complete", "steps": ["a", "b"]});
    world.patch_status(&world.fleets(), "db", json!({"status": {"plan": old}})).await;
    world.patch_status(&world.nodes(), "db-0", json!({"status": {"plan": null}})).await;
    world.patch_status(&world.nodes(), "db-0", json!({"status": {"plan": old}})).await;
    let pods = world.pod_uids().await;
    world.start_operator(&[]).await;
    another_fleet_rolls(&world).await;
    let quiet = world.until_quiet().await;
    assert_eq!(quiet["status"]["plan"], old, "{quiet:#}");
    assert_eq!(condition(&quiet, "UpToDate"), "True/Applied", "{quiet:#}");
    assert_eq!(world.get(&world.nodes(), "db-0").await["status"]["plan"], old);
    assert_eq!(world.pod_uids().await[..2], pods[..2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_another_version_added_to_a_plan_do_not_stop_it() {
    let mut world = World::new("plans").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    world.kill_operator().await;
    let id = world.db().await["status"]["plan"]["id"].clone();
    let patch = json!({"status": {"plan": {"colour": "blue", "weights": [1, 2]}}});
    world.patch_status(&world.fleets(), "db", patch).await;
    world.start_operator(&[]).await;
    world.steer("db-1-0", "default").await;
    let done = world.until_applied().await;
    assert_eq!(done["status"]["plan"]["id"], id, "it goes on under the same plan: {done:#}");
    assert_eq!(world.images().await, ["db:2", "db:2"]);
}
