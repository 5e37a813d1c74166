//! A rollout that takes the time that it is given is not stalled, and a target is not blamed for what it did not do.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::tools::{message, outcomes};
use windlass_harness::kit::{World, condition, fleet};

fn impatient(replicas: i64, deadline_seconds: i64) -> Value {
    let mut fleet = fleet(replicas, "db:1");
    fleet["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(deadline_seconds);
    fleet["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
    fleet
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn min_ready_seconds_and_grace_periods_beyond_the_deadline_stall_nothing() {
    let world = World::new("patience").await;
    let mut fleet = impatient(1, 8);
    fleet["spec"]["minReadySeconds"] = json!(12);
    fleet["spec"]["template"]["spec"]["progressDeadlineSeconds"] = json!(8);
    fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = json!(12);
    world.steer("db-0-0", "whole-grace").await;
    world.fleet(fleet).await;
    world.until_applied().await;
    world.set_image("db:2").await;
    let done = world.until_db("it ends", |db| !outcomes(db).is_empty()).await;
    assert_eq!(outcomes(&done), ["Complete"], "{done:#}");
    assert_eq!(world.images().await, ["db:2"]);
    assert_eq!(world.notes_about("db", "RolloutStalled").await, Vec::<String>::new());
    world.writes_nothing_for(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_machine_that_dies_under_another_node_rolls_nothing_back() {
    let world = World::new("another").await;
    let mut fleet = impatient(3, 2);
    // Long enough to see that one node has it.
    fleet["spec"]["minReadySeconds"] = json!(3);
    fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    world.fleet(fleet).await;
    world.until_applied().await;
    world.set_image("db:2").await;
    world.until_db("one node has v2", |db| db["status"]["rollout"]["nodes"]["updated"] == 1).await;
    world.steer("db-0-0", "dead").await;
    let is_stalled = |db: &Value| condition(db, "Stalled") == "True/NoProgress" && outcomes(db).is_empty();
    let stalled = world.until_db("it stalls", is_stalled).await;
    let sentence = message(&stalled, "Stalled");
    assert!(sentence.contains("db-0: ") && sentence.contains("2 s (progressDeadlineSeconds)"), "{sentence}");
    world.throughout(Duration::from_secs(3), &world.fleets(), "db", "it holds", is_stalled).await;
    world.steer("db-0-0", "default").await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "{done:#}");
    assert_eq!(world.images().await, ["db:2"; 3]);
}
