//! Removal of nodes: one after the other, the highest ordinal first.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, with};

/// Five serving nodes with this `maxUnavailable`.
async fn five(world: &World, max_unavailable: Value) -> Value {
    let in_place = json!({"spec": {"updateStrategy": {"inPlace": {"maxUnavailable": max_unavailable}}}});
    world.settled_fleet(with(fleet(5, "db:1"), &in_place)).await
}

async fn scale(world: &World, replicas: i64) {
    world.patch_fleet(json!({"spec": {"replicas": replicas}})).await;
}

async fn names(world: &World) -> Vec<String> {
    world.uids(&world.nodes()).await.into_keys().collect()
}

/// Waits until exactly these nodes and their pods are left. The garbage collector deletes a pod after its node.
async fn until_left(world: &World, left: &[&str]) {
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    loop {
        let seen = names(world).await;
        let pods = world.uids(&world.pods()).await;
        if seen == left && pods.len() == left.len() {
            return;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "{left:?} should be left: {seen:?}: {:#}",
            world.db().await
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for the event of a node's removal by a plan.
async fn until_told(world: &World, node: &str) {
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    loop {
        let started = world.notes_about(node, "PlanStarted").await;
        if started.iter().any(|note| note.starts_with("RemoveNode")) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{node} left without a plan: {started:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_in_removes_nodes_one_by_one_from_highest_ordinal() {
    let world = World::new("leave").await;
    five(&world, json!(1)).await;
    let pods = world.uids(&world.pods()).await;
    let wave = Wave::watch(&world, 5).await;
    scale(&world, 2).await;
    until_left(&world, &["db-0", "db-1"]).await;
    world.until_db("it is at rest", |db| condition(db, "Reconciling") == "False/Settled").await;
    let seen = wave.end().await;
    assert_eq!(seen.went, ["db-4-0", "db-3-0", "db-2-0"], "{:#?}", seen.log);
    let after = world.uids(&world.pods()).await;
    assert_eq!((&after["db-0-0"], &after["db-1-0"]), (&pods["db-0-0"], &pods["db-1-0"]));
    for node in ["db-4", "db-3", "db-2"] {
        assert_eq!(
            world.notes_about("db", "NodeDeleted").await.iter().filter(|n| n.contains(node)).count(),
            1
        );
        until_told(&world, node).await;
    }
    let db = world.db().await;
    assert_eq!((&db["status"]["replicas"], &db["status"]["readyReplicas"]), (&json!(2), &json!(2)));
    assert!(db["status"]["plan"].is_null(), "it is no rollout: {db:#}");
}
