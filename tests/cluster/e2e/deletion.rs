//! The deletion of a fleet: what the real garbage collector deletes, and what is retained.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};

use windlass_harness::kit::tools::{image_of, is_up};
use windlass_harness::kit::{World, fleet};

fn retained(replicas: i64) -> Value {
    let mut fleet = fleet(replicas, "db:1");
    fleet["spec"]["deletionPolicy"] = json!("Retain");
    fleet
}

/// Waits until only claims are left of the fleet `db`.
async fn until_all_is_gone(world: &World) {
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    for (version, kind) in [
        ("windlass.dev/v1alpha1", "StatefulNode"),
        ("apps/v1", "StatefulSet"),
        ("v1", "Pod"),
        ("v1", "Service"),
        ("apps/v1", "ControllerRevision"),
    ] {
        let api = world.api(version, kind);
        let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
        loop {
            let left = world.uids(&api).await;
            if left.is_empty() {
                break;
            }
            assert!(tokio::time::Instant::now() < until, "{kind} is left: {left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn begin_rollout(world: &World, replicas: i64) {
    world.fleet(fleet(replicas, "db:1")).await;
    world.until_applied().await;
    world.set_image("db:2-slow").await;
    let last = format!("db-{}-0", replicas - 1);
    world.until(&world.pods(), &last, "it moves", |p| image_of(p) == "db:2-slow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_waits_and_recreates_no_node() {
    let world = World::new("fore").await;
    begin_rollout(&world, 3).await;
    let created = world.notes_about("db", "NodeCreated").await.len();
    // A pod that does not terminate keeps its StatefulSet, its node and its fleet.
    world.steer("db-0-0", "hold-terminating").await;
    world.fleets().delete("db", &DeleteParams::foreground()).await.expect("it is deleted");
    let going = world.until_db("it says so", |db| db["status"]["phase"] == "Terminating").await;
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    world
        .until(&world.nodes(), "db-0", "its node says so too", |n| n["status"]["phase"] == "Terminating")
        .await;
    world.steer("db-0-0", "default").await;
    until_all_is_gone(&world).await;
    assert_eq!(world.notes_about("db", "NodeCreated").await.len(), created, "nothing is made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn retained_nodes_stay_pinned_until_their_grant_is_cleared() {
    let world = World::new("retain").await;
    world.fleet(retained(2)).await;
    let done = world.until_applied().await;
    let uid = &done["metadata"]["uid"];
    let (nodes, pods) = (world.uids(&world.nodes()).await, world.uids(&world.pods()).await);
    for node in world.list(&world.nodes()).await {
        assert!(node["metadata"]["ownerReferences"].is_null(), "{node:#}");
        assert_eq!(node["metadata"]["annotations"]["windlass.dev/owner-uid"], *uid);
        assert_eq!(node["metadata"]["labels"]["windlass.dev/deployment"], "db");
    }
    world.delete(&world.fleets(), "db").await;
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.uids(&world.nodes()).await, nodes);
    assert_eq!(world.uids(&world.pods()).await, pods);

    world.patch(&world.nodes(), "db-0", json!({"spec": {"image": "db:2"}})).await;
    world
        .throughout(Duration::from_secs(2), &world.pods(), "db-0-0", "it is pinned", |p| {
            p["metadata"]["uid"] == json!(pods["db-0-0"]) && is_up(p)
        })
        .await;
    world.delete(&world.pods(), "db-0-0").await;
    world
        .until(&world.pods(), "db-0-0", "it is back", |p| {
            is_up(p) && p["metadata"]["uid"] != json!(pods["db-0-0"])
        })
        .await;
    assert_eq!(world.images().await, ["db:1"; 2], "a lost pod comes back as it was");
    world.patch(&world.nodes(), "db-0", json!({"spec": {"grantedHash": null}})).await;
    world.until_pod_runs("db-0-0", "db:2").await;
    assert_eq!(world.uids(&world.pods()).await["db-1-0"], pods["db-1-0"], "the other stays pinned");
}
