//! Windows, and fleets that come first, on a real clock.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::commands::windlass;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// A fleet with a window of ten minutes that opens in so many minutes, each day.
fn in_window(minutes: i64) -> Value {
    let at = Utc::now() + TimeDelta::minutes(minutes);
    let window = json!({"schedule": at.format("%M %H * * *").to_string(), "duration": "10m"});
    with(fleet(2, "db:1"), &json!({"spec": {"updateStrategy": {"windows": [window]}}}))
}

fn waits(fleet: &Value) -> bool {
    fleet["status"]["rollout"]["waitingFor"] != Value::Null
}

fn told(fleet: &Value) -> String {
    fleet["status"]["rollout"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_waits_for_a_window_until_a_person_opens_it() {
    let mut world = World::new("windows").await;
    world.settled_fleet(in_window(5 * 60)).await;
    let before = world.pod_uids().await;
    let planned = windlass(&world, &["plan", "nd/db", "--image", "db:2"]).await;
    assert!(
        planned.out.contains("the window that opens") && planned.out.contains("UTC, in "),
        "{}",
        planned.out
    );
    world.set_image("db:2").await;
    let db = world.until_db("it waits", waits).await;
    assert_eq!(condition(&db, "RolloutInProgress"), "True/Waiting");
    assert!(told(&db).starts_with("waiting for the window that opens "), "{}", told(&db));
    world.kill_operator().await;
    world.start_operator(&[]).await;
    for command in ["status", "explain"] {
        let shown = windlass(&world, &[command, "nd/db"]).await.out;
        assert!(
            shown.contains("waiting for the window that opens ") && shown.contains("UTC, in "),
            "{shown}"
        );
    }
    let planned = windlass(&world, &["plan", "nd/db"]).await.out;
    assert!(
        planned.contains("windlass resume nd/db -n ") && planned.contains(" --now opens it early"),
        "{planned}"
    );
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, before);
    let opened = windlass(&world, &["resume", "nd/db", "--now", "--reason", "security fix"]).await;
    assert_eq!((opened.code, opened.err.as_str()), (0, ""));
    assert!(opened.out.contains("it stays open until the rollout ends"), "{}", opened.out);
    world.until_applied().await;
    assert!(world.images().await.iter().all(|image| image.ends_with("db:2")));
    let db = world.db().await;
    let history = db["status"]["history"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    assert!(history["message"].as_str().is_some_and(|why| why.contains("security fix")), "{history}");
    let again = windlass(&world, &["resume", "nd/db", "--now"]).await;
    assert_eq!(again.code, 1);
    assert!(again.err.contains("no rollout is active"), "{}", again.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn window_opens_by_itself() {
    let world = World::new("nights").await;
    world.settled_fleet(in_window(1)).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    assert!(world.images().await.iter().all(|image| image.ends_with("db:2")));
}

#[tokio::test(flavor = "multi_thread")]
async fn fleets_roll_in_order_and_few_at_a_time() {
    let mut world = World::without_operator("turns").await;
    world.start_operator(&["--max-rollouts", "1"]).await;
    let named = |name: &str, after: Value| {
        let strategy = json!({"metadata": {"name": name}, "spec": {"updateStrategy": {"after": after}}});
        with(fleet(2, "db:1"), &strategy)
    };
    world.settled_fleet(named("db", json!([]))).await;
    world.fleet(named("cache", json!([{"kind": "NodeDeployment", "name": "db"}]))).await;
    world.until(&world.fleets(), "cache", "it serves", is_applied).await;
    world.fleet(named("other", json!([]))).await;
    world.until(&world.fleets(), "other", "it serves", is_applied).await;
    let change = |image: &str| json!({"metadata": {"annotations": {"windlass.dev/release": "2"}}, "spec": {"template": {"spec": {"image": image}}}});
    world.patch(&world.fleets(), "cache", change("db:2")).await;
    let sentence = "waiting for NodeDeployment db to have windlass.dev/release=2: it has none";
    world.until(&world.fleets(), "cache", "it waits for db", |cache| told(cache) == sentence).await;
    world.patch(&world.fleets(), "db", change("db:2-nope")).await;
    world.until_db("a node has failed", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.patch(&world.fleets(), "other", change("db:2")).await;
    let sentence = format!("waiting for nd/db -n {}, which is ahead: --max-rollouts is 1", world.ns);
    world.until(&world.fleets(), "other", "it waits for its turn", |other| told(other) == sentence).await;
    world.patch(&world.fleets(), "db", change("db:2")).await;
    for name in ["db", "other", "cache"] {
        let is_done = |of: &Value| is_applied(of) && of["status"]["updatedReplicas"] == 2;
        world.until(&world.fleets(), name, "it is updated", is_done).await;
    }
}
