//! Grants between a fleet and its nodes: operators of other versions, and nodes without a grant.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, is_applied};

const KEY: &str = "example.com/platform";

fn mark_of(pod: &Value) -> &Value {
    &pod["metadata"]["annotations"][KEY]
}

fn template_mark_of(set: &Value) -> &Value {
    &set["spec"]["template"]["metadata"]["annotations"][KEY]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_renders_another_template_rolls_a_steady_fleet_in_waves_and_says_why() {
    let mut world = World::new("grants").await;
    let first = world.settled_fleet(fleet(3, "db:1")).await;
    world.kill_operator().await;
    let wave = Wave::watch(&world, 3).await;
    let _other = world.other_operator(|o| o.pod_annotation(KEY, "2")).await;
    let rolls = |db: &Value| db["status"]["plan"]["state"] == "Active";
    let db = world.until_db("a rollout begins", rolls).await;
    assert_eq!(condition(&db, "RolloutInProgress"), "True/OperatorDrift", "{db:#}");
    let done = world.until_applied_again().await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(mark_of(&pod), "2", "{pod:#}");
    }
    let seen = wave.at_most(&world, 1).await;
    assert_eq!(seen.replaced("db-0-0"), 1, "{seen:#?}");
    assert_eq!(done["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert!(world.until_event("db", "RolloutStarted").await.contains("OperatorDrift"));
    world.until_quiet().await;
    assert_eq!(world.notes("RolloutStarted").await.len(), 1, "and that was all");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_renders_the_same_writes_nothing_over_a_steady_fleet() {
    let mut world = World::new("grants").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let pods = world.pod_uids().await;
    world.kill_operator().await;
    let mark = world.cp.audit_mark().await;
    let other = world.other_operator(|o| o).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(other);
    world.start_operator(&[]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.operator_writes(mark).await, Vec::<String>::new());
    assert_eq!(world.pod_uids().await, pods);
    // It is running all the same.
    world.set_image("db:2").await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grant_a_pod_that_is_lost_or_crashes_comes_back_at_the_old_template() {
    let mut world = World::new("grants").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
    world.kill_operator().await;
    let before = world.pod_uids().await;
    let generation = world.get(&world.sets(), "db-0").await["metadata"]["generation"].clone();
    let _other = world.other_operator(|o| o.pod_annotation(KEY, "2")).await;
    world.until_quiet().await;

    world.delete(&world.pods(), "db-0-0").await;
    let pod = world.until_serves("db-0-0", &before[0]).await;
    assert!(mark_of(&pod).is_null(), "{pod:#}");
    world.steer("db-1-0", "crash").await;
    let failed = |n: &Value| n["status"]["phase"] == "Failed";
    world.until(&world.nodes(), "db-1", "its pod crashes", failed).await;
    world.delete(&world.pods(), "db-1-0").await;
    let another = |p: &Value| p["metadata"]["uid"].is_string() && p["metadata"]["uid"] != before[1];
    let pod = world.until(&world.pods(), "db-1-0", "it is made again", another).await;
    assert!(mark_of(&pod).is_null(), "{pod:#}");
    let set = world.get(&world.sets(), "db-0").await;
    assert_eq!(set["metadata"]["generation"], generation, "nobody wrote its template: {set:#}");
    assert_eq!(world.db().await["status"]["phase"], "Paused");

    world.steer("db-1-0", "default").await;
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    world.until_applied_again().await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(mark_of(&pod), "2", "{pod:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_stateful_set_that_cannot_be_rendered_as_granted_fails_its_node_until_it_is_granted_anew() {
    let mut world = World::new("grants").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
    world.kill_operator().await;
    let _other = world.other_operator(|o| o.pod_annotation(KEY, "2")).await;
    let other_pod = world.uid_of("db-1-0").await;
    world.delete(&world.sets(), "db-0").await;
    let failed = |n: &Value| n["status"]["phase"] == "Failed" && condition(n, "Ready") == "False/NodesFailed";
    let node = world.until(&world.nodes(), "db-0", "it cannot be made again", failed).await;
    let ready =
        node["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert!(ready["message"].as_str().unwrap().contains("needs a new grant"), "{node:#}");
    world.until_quiet().await;
    assert!(world.get(&world.sets(), "db-0").await.is_null(), "nothing is made that was not granted");
    assert_eq!(world.uid_of("db-1-0").await, other_pod, "a converged node is left as it is");
    let one = world.get(&world.nodes(), "db-1").await;
    assert_eq!(one["status"]["phase"], "Running", "{one:#}");

    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    let pod = world.until_serves("db-0-0", "").await;
    assert_eq!(mark_of(&pod), "2", "{pod:#}");
    world.until_applied_again().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_another_version_takes_over_in_the_middle_and_the_wave_holds() {
    let mut world = World::new("grants").await;
    world.settled_fleet(fleet(4, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-2-0", "hold-terminating").await;
    world.set_image("db:2").await;
    world.until_serves("db-3-0", &before[3]).await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-2-0", "it terminates", leaves).await;
    world.kill_operator().await;
    let wave = Wave::watch(&world, 4).await;
    let _other = world.other_operator(|o| o.pod_annotation(KEY, "2")).await;
    world.until_quiet().await;
    assert_eq!(world.uid_of("db-0-0").await, before[0]);
    assert_eq!(world.uid_of("db-1-0").await, before[1]);
    world.steer("db-2-0", "default").await;
    world.until_applied().await;
    world.until_quiet().await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(mark_of(&pod), "2", "{pod:#}");
    }
    assert_eq!(world.images().await, ["db:2"; 4]);
    wave.at_most(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_of_different_versions_one_after_the_other_end_at_the_last_one() {
    let mut world = World::new("grants").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    world.kill_operator().await;
    let wave = Wave::watch(&world, 3).await;
    let other = world.other_operator(|o| o.pod_annotation(KEY, "2")).await;
    world.until(&world.sets(), "db-2", "it is under way", |s| template_mark_of(s) == "2").await;
    drop(other);
    world.start_operator(&[]).await;
    world.until_db("it is up to date", |db| is_applied(db) && db["status"]["rollout"].is_null()).await;
    world.until_quiet().await;
    for (pod, set) in world.list(&world.pods()).await.iter().zip(world.list(&world.sets()).await) {
        assert!(mark_of(pod).is_null(), "{pod:#}");
        assert!(template_mark_of(&set).is_null(), "{set:#}");
    }
    wave.at_most(&world, 1).await;
}
