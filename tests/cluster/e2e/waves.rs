//! How many nodes are down at once, which are excluded, and changes of the number meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::{Sampler, Seen};
use windlass_harness::kit::tools::{image_of, is_up, outcomes, plan_id};
use windlass_harness::kit::{World, condition, fleet, is_applied};

async fn rolled_with(max_unavailable: Value, replicas: usize, image: &str) -> Seen {
    let world = World::new("wave").await;
    let mut fleet = fleet(replicas as i64, "db:1");
    fleet["spec"]["updateStrategy"]["inPlace"] = json!({"maxUnavailable": max_unavailable});
    world.fleet(fleet).await;
    let created = world.until_applied().await;
    let started = world.notes_about("db", "RolloutStarted").await;
    assert!(created["status"]["plan"].is_null(), "the first creation is a rollout: {started:?}: {created:#}");
    let sampler = Sampler::start(&world, replicas).await;
    world.set_image(image).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(world.images().await, vec![image; replicas]);
    let seen = sampler.finish().await;
    for (pod, lives) in &seen.pods {
        assert_eq!(lives.len(), 2, "{pod} is replaced once: {lives:?}");
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn with_max_unavailable_1_one_node_is_down_at_a_time_from_the_highest_ordinal() {
    let seen = rolled_with(json!(1), 5, "db:2").await;
    seen.at_most(1);
    let down: Vec<&str> =
        seen.log.iter().filter(|(_, _, up)| !up).map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(down, ["db-4-0", "db-3-0", "db-2-0", "db-1-0", "db-0-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_max_unavailable_2_two_nodes_are_down_at_once_and_never_three() {
    let seen = rolled_with(json!(2), 5, "db:2-slow").await;
    seen.at_most(2);
    assert_eq!(seen.worst.len(), 2, "the wave is used: {:#?}", seen.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_seven_nodes_are_three() {
    let seen = rolled_with(json!("50%"), 7, "db:2-slow").await;
    seen.at_most(3);
    assert_eq!(seen.worst.len(), 3, "the wave is used: {:#?}", seen.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_frees_the_wave_only_after_min_ready_seconds() {
    let world = World::new("minready").await;
    let mut wanted = fleet(3, "db:1");
    wanted["spec"]["minReadySeconds"] = json!(4);
    world.fleet(wanted).await;
    let created = world.until_db("all are ready", |db| db["status"]["readyReplicas"] == 3).await;
    assert_eq!(created["status"]["phase"], "Initializing", "Ready is not yet available: {created:#}");
    world.until_applied().await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2").await;
    let seen = world
        .until_db("a node is ready and not yet available", |db| {
            db["status"]["readyReplicas"] == 3 && db["status"]["availableReplicas"] == 2
        })
        .await;
    assert!(seen["status"]["rollout"].is_object());
    world.until_applied().await;
    let ended = std::time::Instant::now();
    let seen = sampler.finish().await;
    seen.at_most(1);
    // Kubernetes' times are whole seconds, so that up to one may be missing.
    let least = Duration::from_secs(3);
    let mut last_up = None;
    for (at, name, up) in &seen.log {
        if *up {
            last_up = Some(*at);
        } else if let Some(before) = last_up {
            assert!(*at - before >= least, "{name} went down {:?} after the one before it", *at - before);
        }
    }
    assert!(ended - last_up.expect("nodes came up") >= least, "complete before the last was available");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_added_during_a_rollout_start_at_its_target() {
    let world = World::new("grow").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2-slow").await;
    world.until(&world.pods(), "db-2-0", "it moves", |p| image_of(p) == "db:2-slow").await;
    world.patch_fleet(json!({"spec": {"replicas": 5}})).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "the rollout goes on under one plan: {done:#}");
    assert_eq!(world.images().await, ["db:2-slow"; 5]);
    let seen = sampler.finish().await;
    seen.at_most(1);
    for pod in ["db-3-0", "db-4-0"] {
        assert_eq!(seen.images_of(pod), ["db:2-slow"], "{pod} is made once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_added_with_another_image_in_one_apply_start_at_it() {
    let world = World::new("grown").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 6).await;
    let changes = json!({"spec": {"replicas": 6, "template": {"spec": {"image": "db:2"}}}});
    world.patch_fleet(changes).await;
    let done = world.until_applied().await;
    assert_eq!((outcomes(&done), world.images().await), (vec!["Complete"], vec!["db:2".to_owned(); 6]));
    let seen = sampler.finish().await;
    for ordinal in 0..6 {
        let images: &[&str] = if ordinal < 3 { &["db:1", "db:2"] } else { &["db:2"] };
        assert_eq!(seen.images_of(&format!("db-{ordinal}-0")), images, "{ordinal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_removed_in_the_middle_of_a_rollout_go_and_the_others_end_at_the_target() {
    let world = World::new("shrink").await;
    world.fleet(fleet(4, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 2).await;
    world.set_image("db:2-slow").await;
    world.until(&world.pods(), "db-3-0", "it moves", |p| image_of(p) == "db:2-slow").await;
    world.patch_fleet(json!({"spec": {"replicas": 2}})).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "{done:#}");
    let nodes: Vec<String> = world.uids(&world.nodes()).await.into_keys().collect();
    assert_eq!(nodes, ["db-0", "db-1"]);
    assert!(world.told_once("db", "RolloutComplete").await.contains("2 nodes"));
    sampler.finish().await.at_most(1);
    for pod in ["db-0-0", "db-1-0"] {
        world.until_pod_runs(pod, "db:2-slow").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_subresource_changes_the_number_of_nodes_and_selects_their_pods() {
    let world = World::new("scale").await;
    world.fleet(fleet(1, "db:1")).await;
    world.until_applied().await;
    let scaled = world.cp.kubectl(&["-n", &world.ns, "scale", "nd/db", "--replicas=3"]).await;
    assert_eq!(scaled.code, Some(0), "{}", scaled.stderr);
    let done =
        world.until_db("three are ready", |db| db["status"]["readyReplicas"] == 3 && is_applied(db)).await;
    assert!(done["status"]["plan"].is_null(), "a change of their number is no rollout: {done:#}");
    let path = format!("/apis/windlass.dev/v1alpha1/namespaces/{}/nodedeployments/db/scale", &*world.ns);
    let scale = world.cp.kubectl(&["get", "--raw", &path]).await;
    let scale: Value = serde_json::from_str(&scale.stdout).expect("a Scale");
    assert_eq!(scale["status"]["replicas"], 3);
    let selector = scale["status"]["selector"].as_str().expect("a selector");
    let selected = kube::api::ListParams::default().labels(selector);
    assert_eq!(world.pods().list(&selected).await.expect("pods").items.len(), 3, "{selector}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_scaled_to_nothing_has_no_plan_and_fills_again_at_the_target() {
    let world = World::new("zero").await;
    world.fleet(fleet(2, "db:1")).await;
    let first = world.until_applied().await;
    world.patch_fleet(json!({"spec": {"replicas": 0}})).await;
    world.until_db("no node is left", |db| db["status"]["replicas"] == 0).await;
    world.set_image("db:2").await;
    let empty = world
        .until_db("the change is seen", |db| {
            db["status"]["observedGeneration"] == db["metadata"]["generation"]
                && db["status"]["requestedRolloutHash"] != first["status"]["requestedRolloutHash"]
        })
        .await;
    assert!(empty["status"]["plan"].is_null() && empty["status"]["rollout"].is_null(), "{empty:#}");
    let completed = &first["status"]["lastCompletedRolloutHash"];
    assert_eq!(empty["status"]["lastCompletedRolloutHash"], *completed, "nothing was completed");
    assert_eq!(condition(&empty, "UpToDate"), "Unknown/NotStarted");
    world.writes_nothing_for(Duration::from_secs(1)).await;

    let sampler = Sampler::start(&world, 0).await;
    world.patch_fleet(json!({"spec": {"replicas": 3}})).await;
    let done = world.until_applied().await;
    assert!(done["status"]["plan"].is_null(), "filling again is no rollout: {done:#}");
    assert_eq!(done["status"]["lastCompletedRolloutHash"], done["status"]["requestedRolloutHash"]);
    let seen = sampler.finish().await;
    for pod in ["db-0-0", "db-1-0", "db-2-0"] {
        assert_eq!(seen.images_of(pod), ["db:2"], "{pod} is made at the target");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_scaled_to_nothing_in_the_middle_of_a_rollout_ends_its_plan_and_completes_nothing() {
    let world = World::new("drop").await;
    world.fleet(fleet(2, "db:1")).await;
    let first = world.until_applied().await;
    world.set_image("db:2-nope").await;
    world.until_db("the rollout is on", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.patch_fleet(json!({"spec": {"replicas": 0}})).await;
    let empty = world
        .until_db("no node is left", |db| {
            db["status"]["replicas"] == 0 && db["status"]["plan"]["state"] == "Superseded"
        })
        .await;
    assert!(empty["status"]["rollout"].is_null(), "{empty:#}");
    assert_eq!(outcomes(&empty), ["Superseded"]);
    assert_eq!(empty["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    world.set_image("db:3").await;
    world.patch_fleet(json!({"spec": {"replicas": 2}})).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Superseded"], "filling again is no rollout: {done:#}");
    assert_eq!(world.images().await, ["db:3"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_holds_the_ordinals_below_it_stops_the_clock_and_lets_go_when_lowered() {
    let world = World::new("part").await;
    let mut wanted = fleet(4, "db:1");
    wanted["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(2);
    wanted["spec"]["updateStrategy"]["inPlace"] = json!({"partition": 2});
    world.fleet(wanted).await;
    let first = world.until_applied().await;
    let before = world.uids(&world.pods()).await;
    let sampler = Sampler::start(&world, 4).await;
    world.set_image("db:2").await;
    let is_held = |db: &Value| condition(db, "UpToDate") == "Unknown/PartitionHeld";
    let held = world.until_db("the partition holds", is_held).await;
    assert_eq!(condition(&held, "RolloutInProgress"), "True/PartitionHeld");
    assert_eq!(held["status"]["phase"], "Upgrading");
    assert_eq!(held["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(world.images().await, ["db:1", "db:1", "db:2", "db:2"]);
    world
        .throughout(Duration::from_secs(4), &world.fleets(), "db", "it is held, not stalled", |db| {
            is_held(db) && condition(db, "Stalled") == "False/Progressing"
        })
        .await;
    let after = world.uids(&world.pods()).await;
    assert!(world.notes_about("db", "RolloutStalled").await.is_empty());
    assert_eq!((&after["db-0-0"], &after["db-1-0"]), (&before["db-0-0"], &before["db-1-0"]));
    sampler.finish().await.at_most(1);

    let lost = world.get(&world.nodes(), "db-1").await;
    world.delete(&world.nodes(), "db-1").await;
    world
        .until(&world.nodes(), "db-1", "it is made again", |n| {
            n["metadata"]["uid"].is_string() && n["metadata"]["uid"] != lost["metadata"]["uid"]
        })
        .await;
    world
        .until(&world.pods(), "db-1-0", "its pod is back", |p| {
            is_up(p) && p["metadata"]["uid"] != before["db-1-0"]
        })
        .await;
    assert_eq!(
        world.images().await,
        ["db:1", "db:1", "db:2", "db:2"],
        "a lost node below it comes back as it was"
    );

    let sampler = Sampler::start(&world, 4).await;
    world.patch_fleet(json!({"spec": {"updateStrategy": {"inPlace": {"partition": 0}}}})).await;
    let done = world.until_applied().await;
    assert_eq!(plan_id(&done), plan_id(&held), "the same plan goes on");
    assert_eq!(world.images().await, ["db:2"; 4]);
    assert!(world.notes_about("db", "RolloutStalled").await.is_empty());
    sampler.finish().await.at_most(1);
}
