//! A rollout that takes the time that it is given is not stalled, and a target is not blamed for what it did not do.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::tools::outcomes;
use windlass_harness::kit::{World, fleet};

fn impatient(replicas: i64, deadline_seconds: i64) -> Value {
    let mut fleet = fleet(replicas, "db:1");
    fleet["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(deadline_seconds);
    fleet["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
    fleet
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn long_min_ready_and_grace_periods_do_not_stall() {
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
