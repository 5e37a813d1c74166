//! Restarts: the same revision in new pods, a wave at a time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use windlass_harness::kit::tools::{is_up, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet, with};

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
async fn an_abort_takes_back_a_restart_that_waits_for_its_hook() {
    let world = World::new("unrestart").await;
    let hooks = |list: Value| json!({"spec": {"updateStrategy": {"type": "InPlace", "hooks": list}}});
    let asked = hooks(json!([{"name": "go", "at": "BeforeNode", "approval": {}}]));
    world.settled_fleet(with(fleet(3, "db:1"), &asked)).await;
    let before = world.pod_uids().await;
    world.annotate_fleet(RESTART, json!("2030-01-31T12:00:00Z")).await;
    let waits = |n: &Value| {
        let tasks = n["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().any(|task| task["type"] == "await-approval" && task["state"] == "Running")
    };
    world.until(&world.nodes(), "db-2", "it waits for its hook", waits).await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&world.db().await))).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    let stays = |n: &Value| {
        n["spec"]["grantedHash"] == n["status"]["podTemplateHash"]
            && n["status"]["spentGrantID"] == n["spec"]["grantID"]
            && n["status"]["plan"]["state"] != "Active"
    };
    let node = world.until(&world.nodes(), "db-2", "it stays at what it runs", stays).await;
    assert!(node["metadata"]["annotations"][RESTART].is_null(), "{node:#}");
    world.writes_nothing_for(Duration::from_secs(3)).await;
    assert_eq!(world.pod_uids().await, before);
    // What is rolled out later carries it out.
    world.patch_fleet(hooks(json!([]))).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(pod["metadata"]["annotations"][RESTART], "2030-01-31T12:00:00Z", "{pod:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_rollout_reaches_the_nodes_that_are_done_too() {
    let world = World::new("mid").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2-slow").await;
    world.until_db("one is done", |db| db["status"]["rollout"]["nodes"]["updated"] == 1).await;
    world.annotate_fleet(RESTART, json!("2030-01-31T12:00:00Z")).await;
    let done = world
        .until_db("all is done", |db| {
            condition(db, "UpToDate") == "True/Applied"
                && db["status"]["restartedAt"] == "2030-01-31T12:00:00Z"
        })
        .await;
    assert_eq!(outcomes(&done), ["Superseded", "Complete"], "{done:#}");
    for (name, pod) in world.pods_by_name().await {
        let restarted = &pod["metadata"]["annotations"]["windlass.dev/restartedAt"];
        assert_eq!(restarted, "2030-01-31T12:00:00Z", "{name}");
        world.until_pod_runs(&name, "db:2-slow").await;
    }
    sampler.finish().await.at_most(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_one_node_replaces_its_pod_only() {
    let world = World::new("one").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let before = world.uids(&world.pods()).await;
    world.annotate(&world.nodes(), "db-1", RESTART, json!("2030-01-31T12:00:00Z")).await;
    world
        .until(&world.pods(), "db-1-0", "it has restarted", |p| {
            is_up(p) && p["metadata"]["uid"] != before["db-1-0"]
        })
        .await;
    let done = world.until_db("the fleet is settled", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    world.writes_nothing_for(Duration::from_secs(2)).await;
    let after = world.uids(&world.pods()).await;
    for pod in ["db-0-0", "db-2-0"] {
        assert_eq!(after[pod], before[pod], "{pod} is left alone");
    }
    let node = world.get(&world.nodes(), "db-1").await;
    assert_eq!(node["status"]["plan"]["recipe"], "RestartNode");
    assert_eq!(node["status"]["restartedAt"], "2030-01-31T12:00:00Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_one_node_waits_while_another_is_down() {
    let world = World::new("turn").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.uids(&world.pods()).await;
    world.steer("db-0-0", "unready").await;
    world.until_db("a node is down", |db| db["status"]["readyReplicas"] == 1).await;
    world.annotate(&world.nodes(), "db-1", RESTART, json!("2030-01-31T12:00:00Z")).await;
    world
        .throughout(Duration::from_secs(2), &world.pods(), "db-1-0", "it waits for its turn", |p| {
            p["metadata"]["uid"] == before["db-1-0"] && is_up(p)
        })
        .await;
    world.steer("db-0-0", "ready").await;
    world
        .until(&world.pods(), "db-1-0", "it has restarted", |p| {
            is_up(p) && p["metadata"]["uid"] != before["db-1-0"]
        })
        .await;
    assert_eq!(world.uids(&world.pods()).await["db-0-0"], before["db-0-0"]);
}

#[tokio::test(flavor = "multi_thread")]
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

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_reaches_the_pods_that_the_partition_holds_once_it_is_lowered() {
    let world = World::new("heldrestart").await;
    let held = |below: i64| json!({"spec": {"updateStrategy": {"type": "InPlace", "inPlace": {"partition": below}}}});
    world.settled_fleet(with(fleet(3, "db:1"), &held(2))).await;
    let before = world.pod_uids().await;
    world.annotate_fleet(RESTART, json!("2030-01-31T12:00:00Z")).await;
    let kept = world
        .until_db("the partition holds it", |db| condition(db, "RolloutInProgress") == "True/PartitionHeld")
        .await;
    assert_eq!(kept["status"]["rollout"]["nodes"]["updated"], 1, "{kept:#}");
    world.until_quiet().await;
    let meanwhile = world.pod_uids().await;
    assert_eq!(meanwhile[..2], before[..2], "they keep what they run");
    assert_ne!(meanwhile[2], before[2]);
    let sampler = Sampler::start(&world, 3).await;
    world.patch_fleet(held(0)).await;
    let done = world.until_db("all have restarted", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    sampler.finish().await.at_most(1);
    let after = world.pod_uids().await;
    assert!(after[0] != before[0] && after[1] != before[1] && after[2] == meanwhile[2], "{after:?}");
}
