//! Restarts: the same revision in new pods, a wave at a time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use windlass_harness::kit::tools::{is_up, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet};

const RESTART: &str = "windlass.dev/restartedAt";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_a_fleet_replaces_every_pod_once_in_waves_and_is_no_new_target() {
    let world = World::new("restart").await;
    world.fleet(fleet(3, "db:1")).await;
    let first = world.until_applied().await;
    let sampler = Sampler::start(&world, 3).await;
    world.annotate_fleet(RESTART, json!("2030-01-31T12:00:00Z")).await;
    let rolling = world.until_db("it restarts", |db| db["status"]["rollout"].is_object()).await;
    assert_eq!(condition(&rolling, "RolloutInProgress"), "True/RestartRequested");
    let done = world.until_db("it has restarted", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    assert_eq!(done["status"]["restartedAt"], "2030-01-31T12:00:00Z");
    for hash in ["requestedRolloutHash", "lastCompletedRolloutHash", "updateRevision"] {
        assert_eq!(done["status"][hash], first["status"][hash], "a restart is not a new target");
    }
    let seen = sampler.finish().await;
    seen.at_most(1);
    for (pod, lives) in &seen.pods {
        assert_eq!(lives.len(), 2, "{pod}: {lives:?}");
    }
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["status"]["plan"]["recipe"], "RestartNode", "{node:#}");
    }

    let pods = world.pod_uids().await;
    for value in [json!("2029-12-31T12:00:00Z"), Value::Null, json!("2030-01-31T13:00:00+01:00")] {
        world.annotate_fleet(RESTART, value).await;
        world.writes_nothing_for(Duration::from_secs(1)).await;
    }
    assert!(world.notes_about("db", "InvalidSpec").await.is_empty());
    world.annotate_fleet(RESTART, json!("tomorrow")).await;
    let note = world.told_once("db", "InvalidSpec").await;
    assert!(note.contains("tomorrow"), "{note}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.pod_uids().await, pods, "older, removed and unreadable ones do nothing");
    assert_eq!(plan_id(&world.db().await), plan_id(&done));

    world.patch_fleet(json!({"spec": {"replicas": 4}})).await;
    world.until_db("four are ready", |db| db["status"]["readyReplicas"] == 4).await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
    assert_eq!(world.pod_uids().await[..3], pods[..], "a node added later has restarted already");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_node_without_a_fleet_restarts_by_itself() {
    let world = World::new("alone").await;
    let mut node = fleet(1, "db:1")["spec"]["template"].take();
    node["metadata"] = json!({"name": "solo"});
    world.create("windlass.dev/v1alpha1", "StatefulNode", node).await;
    let running = world.until_pod_runs("solo-0", "db:1").await;
    world.annotate(&world.nodes(), "solo", RESTART, json!("2030-01-31T12:00:00Z")).await;
    world
        .until(&world.pods(), "solo-0", "it has restarted", |p| {
            is_up(p) && p["metadata"]["uid"] != running["metadata"]["uid"]
        })
        .await;
    world
        .until(&world.nodes(), "solo", "its plan is over", |n| {
            n["status"]["plan"]["recipe"] == "RestartNode" && n["status"]["plan"]["state"] == "Complete"
        })
        .await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
}
