//! Removal of nodes: how many at a time, in which order, what blocks it, and what cancels it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use crate::e2e::sets::blue_green;
use windlass_harness::kit::tools::{is_up, message, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet, with};

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

/// Waits until exactly these nodes are left.
async fn until_left(world: &World, left: &[&str]) {
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    loop {
        let seen = names(world).await;
        if seen == left {
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
async fn nodes_leave_one_after_the_other_from_the_highest_ordinal_by_a_plan_of_their_own() {
    let world = World::new("leave").await;
    five(&world, json!(1)).await;
    let pods = world.uids(&world.pods()).await;
    let sampler = Sampler::start(&world, 5).await;
    scale(&world, 2).await;
    until_left(&world, &["db-0", "db-1"]).await;
    world.until_db("it is at rest", |db| condition(db, "Reconciling") == "False/Settled").await;
    let seen = sampler.finish().await;
    let went: Vec<&str> = seen.log.iter().filter(|(_, _, up)| !up).map(|(_, pod, _)| pod.as_str()).collect();
    assert_eq!(went, ["db-4-0", "db-3-0", "db-2-0"], "{:#?}", seen.log);
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

#[tokio::test(flavor = "multi_thread")]
async fn the_next_node_leaves_when_the_pod_of_the_one_before_is_gone() {
    let world = World::new("leavepod").await;
    five(&world, json!(1)).await;
    world.steer("db-4-0", "hold-terminating").await;
    scale(&world, 3).await;
    let waits = |db: &Value| {
        message(db, "Reconciling").contains("before db-3 can leave")
            && message(db, "Reconciling").contains("db-4-0")
    };
    world.until_db("it says what it waits for", waits).await;
    world.throughout(Duration::from_secs(2), &world.pods(), "db-3-0", "it serves", is_up).await;
    world.steer("db-4-0", "default").await;
    until_left(&world, &["db-0", "db-1", "db-2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_leave_at_once_as_the_wave_allows_by_a_percentage_of_what_is_wanted() {
    let world = World::new("leavetwo").await;
    // Of three desired nodes two may be down.
    five(&world, json!("67%")).await;
    let sampler = Sampler::start(&world, 5).await;
    for pod in ["db-4-0", "db-3-0"] {
        world.steer(pod, "hold-terminating").await;
    }
    scale(&world, 3).await;
    until_left(&world, &["db-0", "db-1", "db-2"]).await;
    for pod in ["db-4-0", "db-3-0"] {
        world
            .until(&world.pods(), pod, "it shuts down", |p| p["metadata"]["deletionTimestamp"].is_string())
            .await;
        world.steer(pod, "default").await;
    }
    sampler.finish().await.at_most(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn none_that_serves_leaves_while_another_is_down_and_the_fleet_says_which() {
    let world = World::new("leavedown").await;
    five(&world, json!(1)).await;
    world.steer("db-0-0", "unready").await;
    world.until_db("db-0 is down", |db| db["status"]["readyReplicas"] == 4).await;
    scale(&world, 3).await;
    let says = |db: &Value| {
        let message = message(db, "Reconciling");
        condition(db, "Reconciling") == "True/Progressing"
            && message.contains("before db-4, db-3 can leave")
            && message.contains("(db-0)")
    };
    world.until_db("it says what it waits for", says).await;
    for node in ["db-3", "db-4"] {
        let stays =
            |n: &Value| n["spec"]["removalID"].is_null() && n["metadata"]["deletionTimestamp"].is_null();
        world.throughout(Duration::from_secs(1), &world.nodes(), node, "it stays", stays).await;
    }
    assert_eq!(world.db().await["status"]["replicas"], 5);
    let sampler = Sampler::start(&world, 5).await;
    world.steer("db-0-0", "default").await;
    until_left(&world, &["db-0", "db-1", "db-2"]).await;
    let seen = sampler.finish().await;
    let went: Vec<&str> = seen.log.iter().filter(|(_, _, up)| !up).map(|(_, pod, _)| pod.as_str()).collect();
    assert_eq!(went, ["db-4-0", "db-3-0"], "{:#?}", seen.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_leaves_at_once_even_where_its_spec_cannot_be_carried_out() {
    let world = World::new("leavesick").await;
    five(&world, json!(1)).await;
    world.steer("db-0-0", "unready").await;
    world.steer("db-3-0", "unready").await;
    world.until_db("two are down", |db| db["status"]["readyReplicas"] == 3).await;
    scale(&world, 3).await;
    until_left(&world, &["db-0", "db-1", "db-2", "db-4"]).await;
    world.throughout(Duration::from_secs(1), &world.pods(), "db-4-0", "it serves", is_up).await;
    // The API server refuses db-4's template, and then its pod goes: only a plan for its removal starts.
    let bad = json!({"spec": {"grantedHash": null, "podTemplate": {"spec": {"containers": [{"name": "db", "image": "db:1", "nosuchfield": 1}]}}}});
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.patch(&world.nodes(), "db-4", bad).await;
    world
        .until(&world.nodes(), "db-4", "it is refused", |n| condition(n, "Stalled") == "True/InvalidSpec")
        .await;
    world.steer("db-4-0", "unready").await;
    world.until_db("three are down", |db| db["status"]["readyReplicas"] == 2).await;
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    until_left(&world, &["db-0", "db-1", "db-2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leaves_a_fleet_that_is_paused_and_the_message_says_so() {
    let world = World::new("leavepause").await;
    five(&world, json!(2)).await;
    world.patch_fleet(json!({"spec": {"paused": true, "replicas": 3}})).await;
    let says = |db: &Value| message(db, "Reconciling").contains("resumed before db-4, db-3 can leave");
    world.until_db("it says what it waits for", says).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&world).await.len(), 5);
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    until_left(&world, &["db-0", "db-1", "db-2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_wanted_again_goes_on_as_it_is_without_a_restart() {
    let mut world = World::new("leaveback").await;
    five(&world, json!(1)).await;
    let before = (world.uids(&world.nodes()).await, world.uids(&world.pods()).await);
    // Requested but not deleted: as after an operator's death, or if the fleet is paused at that moment.
    world.patch_fleet(json!({"spec": {"paused": true, "replicas": 4}})).await;
    world.until_db("it says so", |db| message(db, "Reconciling").contains("db-4 can leave")).await;
    world.patch(&world.nodes(), "db-4", json!({"spec": {"removalID": "remove-1"}})).await;
    let leaves = |n: &Value| {
        let plan = &n["status"]["plan"];
        plan["recipe"] == "RemoveNode"
            && plan["state"] == "Active"
            && plan["tasks"][0]["type"] == "await-removal"
    };
    world.until(&world.nodes(), "db-4", "it waits to be deleted", leaves).await;
    let told = |n: &Value| {
        n["status"]["plan"]["tasks"][0]["message"].as_str().is_some_and(|m| m.starts_with("waiting for"))
    };
    let node = world.until(&world.nodes(), "db-4", "it says what for", told).await;
    assert_eq!(node["status"]["phase"], "Running", "{node:#}");
    assert_eq!(condition(&node, "Ready"), "True/NodeReady");
    assert_eq!(condition(&node, "NodeUpdateInProgress"), "False/UpdateComplete");
    let db = world.db().await;
    assert_eq!((&db["status"]["replicas"], &db["status"]["readyReplicas"]), (&json!(5), &json!(5)));
    world.kill_operator().await;
    scale(&world, 5).await;
    world.start_operator(&[]).await;
    let stays = |n: &Value| {
        n["spec"]["removalID"].is_null()
            && n["status"]["plan"]["state"] != "Active"
            && outcomes(n).last() == Some(&"Superseded")
    };
    let node = world.until(&world.nodes(), "db-4", "it stays", stays).await;
    let last = node["status"]["history"].as_array().and_then(|h| h.last()).cloned().unwrap_or_default();
    assert_eq!((&last["recipe"], &last["reason"]), (&json!("RemoveNode"), &json!("Kept")), "{node:#}");
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    world.until_db("it is at rest", |db| condition(db, "Reconciling") == "False/Settled").await;
    assert_eq!((world.uids(&world.nodes()).await, world.uids(&world.pods()).await), before);
    assert!(world.notes_about("db", "NodeDeleted").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_leave_in_the_middle_of_a_rollout_within_its_wave() {
    let world = World::new("leaveroll").await;
    five(&world, json!(1)).await;
    let sampler = Sampler::start(&world, 5).await;
    world.set_image("db:2-slow").await;
    world
        .until(&world.pods(), "db-4-0", "it moves", |p| {
            windlass_harness::kit::tools::image_of(p) == "db:2-slow"
        })
        .await;
    let begun = world.db().await;
    scale(&world, 3).await;
    let says = |db: &Value| db["status"]["rollout"]["message"].as_str().is_some_and(|m| m.contains("leave"));
    world.until_db("the rollout says what it waits for", says).await;
    let done = world.until_applied().await;
    assert_eq!(plan_id(&done), plan_id(&begun), "the rollout goes on under its plan");
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(names(&world).await, ["db-0", "db-1", "db-2"]);
    assert_eq!(world.images().await, ["db:2-slow"; 3]);
    let seen = sampler.finish().await;
    assert!(
        seen.images_of("db-3-0").len() == 1,
        "what leaves is not moved before: {:?}",
        seen.images_of("db-3-0")
    );
    for pod in ["db-0-0", "db-1-0", "db-2-0"] {
        assert_eq!(seen.images_of(pod), ["db:1", "db:2-slow"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_again_and_again_lets_no_more_go_than_the_wave_allows() {
    let mut world = World::new("leavekill").await;
    five(&world, json!(1)).await;
    let sampler = Sampler::start(&world, 5).await;
    scale(&world, 1).await;
    let mut random = crate::e2e::killed::Random::seeded();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(20 + random.below(600))).await;
        world.kill_operator().await;
        world.start_operator(&[]).await;
    }
    until_left(&world, &["db-0"]).await;
    let seen = sampler.finish().await;
    let went: Vec<&str> = seen.log.iter().filter(|(_, _, up)| !up).map(|(_, pod, _)| pod.as_str()).collect();
    assert_eq!(went, ["db-4-0", "db-3-0", "db-2-0", "db-1-0"], "{:#?}", seen.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_a_set_that_has_served_leave_together_by_the_same_plan() {
    let world = World::new("leaveset").await;
    world.settled_fleet(blue_green(3, json!({"retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    world
        .until_db("the old set is gone", |db| {
            windlass_harness::kit::is_applied(db) && db["status"]["rollout"].is_null()
        })
        .await;
    for node in ["db-0", "db-1", "db-2"] {
        until_told(&world, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_deleted_asks_no_node_to_leave() {
    let world = World::new("leavedel").await;
    five(&world, json!(1)).await;
    world.delete(&world.fleets(), "db").await;
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    until_left(&world, &[]).await;
    for node in ["db-0", "db-4"] {
        let started = world.notes_about(node, "PlanStarted").await;
        assert!(started.iter().all(|note| !note.starts_with("RemoveNode")), "{node}: {started:?}");
    }
}
