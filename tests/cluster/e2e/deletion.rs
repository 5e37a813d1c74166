//! The deletion of a fleet: what is deleted, what is retained, and how it behaves from then on.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::e2e::sets::{blue_green, selected, stage, text};
use windlass_harness::kit::tools::{image_of, is_up, message};
use windlass_harness::kit::{World, condition, fleet};

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
async fn a_fleet_deleted_in_the_middle_of_a_rollout_takes_everything_with_it() {
    let world = World::new("gone").await;
    begin_rollout(&world, 3).await;
    let created = world.notes_about("db", "NodeCreated").await.len();
    world.delete(&world.fleets(), "db").await;
    until_all_is_gone(&world).await;
    world.writes_nothing_for(Duration::from_secs(1)).await;
    assert_eq!(world.notes_about("db", "NodeCreated").await.len(), created, "nothing is made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_deleted_in_the_foreground_waits_for_its_nodes_and_makes_none_again() {
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
async fn retained_nodes_live_on_pinned_until_somebody_clears_their_grant() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_deleted_in_the_middle_of_a_rollout_leaves_retained_nodes_at_their_grants() {
    let world = World::new("leave").await;
    begin_rollout(&world, 3).await;
    world.patch_fleet(json!({"spec": {"deletionPolicy": "Retain"}})).await;
    for node in ["db-0", "db-1", "db-2"] {
        world
            .until(&world.nodes(), node, "it has no owner", |n| n["metadata"]["ownerReferences"].is_null())
            .await;
    }
    world.delete(&world.fleets(), "db").await;
    world.until_pod_runs("db-2-0", "db:2-slow").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (pod, state) in world.pods_by_name().await {
        let node = world.get(&world.nodes(), pod.strip_suffix("-0").unwrap()).await;
        let held = node["spec"]["image"].as_str().unwrap_or("db:1");
        assert_eq!(image_of(&state), held, "{pod} runs what its node holds");
    }
    assert_eq!(world.images().await[0], "db:1", "nothing is granted by nobody");
}

/// Deletes the fleet, and checks that pods and claims of both sets stay, and are recreated unchanged.
async fn delete_and_hold_both_sets(world: &World, nodes: usize) {
    let claims = world.api("v1", "PersistentVolumeClaim");
    let (pods, volumes) = (world.uids(&world.pods()).await, world.uids(&claims).await);
    assert_eq!((pods.len(), volumes.len()), (nodes, nodes));
    let images = world.images().await;
    world.delete(&world.fleets(), "db").await;
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.uids(&world.pods()).await, pods);
    assert_eq!(world.uids(&claims).await, volumes);
    for node in world.list(&world.nodes()).await {
        assert!(node["metadata"]["ownerReferences"].is_null(), "{node:#}");
        assert_eq!(node["spec"]["grantedHash"], node["status"]["podTemplateHash"], "{node:#}");
    }
    for (pod, uid) in &pods {
        world.delete(&world.pods(), pod).await;
        world
            .until(&world.pods(), pod, "it is back", |p| is_up(p) && p["metadata"]["uid"] != json!(uid))
            .await;
    }
    assert_eq!(world.images().await, images, "each as it was");
    assert_eq!(world.uids(&claims).await, volumes);
    world.until_quiet().await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
}

fn retained_blue_green(settings: Value) -> Value {
    let mut fleet = blue_green(1, settings);
    fleet["spec"]["deletionPolicy"] = json!("Retain");
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_deleted_before_a_promotion_leaves_both_retained_sets_as_they_are() {
    let world = World::new("leavebg").await;
    world.settled_fleet(retained_blue_green(json!({"promotion": "Manual"}))).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    world.until_db("it is ready", ready).await;
    world.until_quiet().await;
    delete_and_hold_both_sets(&world, 2).await;
    assert_eq!(selected(&world).await, "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_deleted_while_its_old_set_retires_leaves_both_retained_sets_as_they_are() {
    let world = World::new("leavert").await;
    world.settled_fleet(retained_blue_green(json!({"retireDelaySeconds": 600}))).await;
    world.set_image("db:2").await;
    let moved = world.until_db("traffic moved", stage("Retiring")).await;
    world.until_quiet().await;
    delete_and_hold_both_sets(&world, 2).await;
    assert_eq!(selected(&world).await, text(&moved["status"], "activeSet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_deletion_policy_rewrites_the_owners_at_once_and_restarts_nothing() {
    let world = World::new("policy").await;
    let mut wanted = fleet(2, "db:1");
    wanted["spec"]["service"] = json!({"ports": [{"port": 80}]});
    world.fleet(wanted).await;
    let done = world.until_applied().await;
    let uid = done["metadata"]["uid"].clone();
    let pods = world.uids(&world.pods()).await;
    let services = world.api("v1", "Service");
    for policy in ["Retain", "Delete"] {
        world.patch_fleet(json!({"spec": {"deletionPolicy": policy}})).await;
        let retained = policy == "Retain";
        let fits = |object: &Value| {
            let owned = object["metadata"]["ownerReferences"][0]["uid"] == uid;
            let marked = object["metadata"]["annotations"]["windlass.dev/owner-uid"] == uid;
            owned != retained && marked == retained
        };
        for node in ["db-0", "db-1"] {
            world.until(&world.nodes(), node, &format!("its owner fits {policy}"), fits).await;
        }
        world.until(&services, "db", &format!("its owner fits {policy}"), fits).await;
        let after = world.until_applied().await;
        assert!(after["status"]["plan"].is_null(), "it is no rollout: {after:#}");
    }
    assert_eq!(world.uids(&world.pods()).await, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fleet_over_left_over_nodes_names_them_and_leaves_them_alone() {
    let world = World::new("heir").await;
    world.fleet(retained(2)).await;
    world.until_applied().await;
    let (nodes, pods) = (world.uids(&world.nodes()).await, world.uids(&world.pods()).await);
    world.delete(&world.fleets(), "db").await;
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    world.fleet(fleet(3, "db:9")).await;
    let refused = world.until_db("it says so", |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
    let sentence = message(&refused, "UpToDate");
    assert!(sentence.contains("db-0") && sentence.contains("deleted"), "{sentence}");
    assert_eq!(condition(&refused, "Stalled"), "True/InvalidSpec");
    world.until_pod_runs("db-2-0", "db:9").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for node in ["db-0", "db-1"] {
        assert_eq!(world.uids(&world.nodes()).await[node], nodes[node]);
        let pod = format!("{node}-0");
        assert_eq!(world.uids(&world.pods()).await[&pod], pods[&pod]);
    }
    assert!(world.notes_about("db", "InvalidSpec").await.len() <= 2, "one event for each name");

    world.delete(&world.nodes(), "db-0").await;
    world.delete(&world.nodes(), "db-1").await;
    let done = world.until_applied().await;
    assert_eq!(done["status"]["readyReplicas"], 3);
    assert_eq!(world.images().await, ["db:9"; 3]);
}
