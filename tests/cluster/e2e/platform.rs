//! A platform rewrites what Windlass writes, on pods and on StatefulSets. No Ready pod is deleted for it outside of a
//! wave, fleets complete, and at rest nothing is written.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::policies::{Does, On, Policy};
use windlass_harness::kit::{Wave, World, fleet};

async fn current_images(world: &World) -> Vec<Value> {
    let nodes = world.list(&world.nodes()).await;
    nodes.iter().map(|node| node["status"]["currentImage"].clone()).collect()
}

/// Nothing is written while nobody changes anything.
async fn writes_nothing(world: &World) {
    world.until_quiet().await;
    let mark = world.cp.audit_mark().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.operator_writes(mark).await, [""; 0]);
}

/// Changes a label of every child object, and waits until everything is at rest.
async fn relabel(world: &World, team: &str) {
    world.patch_fleet(json!({"spec": {"template": {"metadata": {"labels": {"team": team}}}}})).await;
    for node in world.list(&world.nodes()).await {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let done = |set: &Value| {
            set["metadata"]["labels"]["team"] == team
                && set["status"]["observedGeneration"] == set["metadata"]["generation"]
        };
        world.until(&world.sets(), name, "its labels follow", done).await;
    }
    world.until_quiet().await;
}

/// A new image is rolled out in its wave, each pod is replaced once, and then everything is at rest.
async fn rolls_in_its_wave(world: &World, replicas: usize) {
    let wave = Wave::watch(world, replicas).await;
    world.set_image("db:2").await;
    let done = world.until_applied().await;
    let seen = wave.at_most(world, 1).await;
    for ordinal in 0..replicas {
        assert_eq!(seen.replaced(&format!("db-{ordinal}-0")), 1, "{seen:#?}");
    }
    assert_eq!(current_images(world).await, vec![json!("db:2"); replicas]);
    assert_eq!(done["status"]["phase"], "Ready", "{done:#}");
    writes_nothing(world).await;
}

async fn a_fleet_under(on: On, does: Does) {
    let world = World::new("platform").await;
    let policy = Policy::install(&world, on, does).await;
    let made = world.settled_fleet(fleet(2, "db:1")).await;
    assert_eq!(made["status"]["phase"], "Ready", "{made:#}");
    assert_eq!(current_images(&world).await, ["db:1"; 2], "{on:?} {does:?}");
    rolls_in_its_wave(&world, 2).await;
    // What admission no longer adds stays until its pod is replaced.
    let pods = world.pod_uids().await;
    policy.remove(&world).await;
    relabel(&world, "storage").await;
    writes_nothing(&world).await;
    assert_eq!(world.pod_uids().await, pods);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_fleet_completes_where_images_of_pods_are_pinned() {
    a_fleet_under(On::Pods, Does::Pin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_completes_where_a_proxy_is_put_first_into_templates() {
    a_fleet_under(On::StatefulSets, Does::AddFirst).await;
}
