//! A platform rewrites what Windlass writes: on pods and on StatefulSets, before a fleet is created, while it is at
//! rest and during a rollout. No Ready pod is deleted for it outside of a wave, fleets complete, and at rest nothing
//! is written.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::policies::{Does, On, Policy};
use crate::e2e::sets::{blue_green, is_over, set_of, stage};
use windlass_harness::kit::{Wave, World, fleet, with};

/// The image that the main container of each pod was made from, by pod name; it need not be the first container.
async fn main_images(world: &World) -> Vec<String> {
    let mut pods = world.list(&world.pods()).await;
    pods.sort_by_key(|p| p["metadata"]["name"].to_string());
    let main = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let db = containers.iter().find(|c| c["name"] == "db").cloned().unwrap_or_default();
        db["image"].as_str().unwrap_or_default().to_owned()
    };
    pods.iter().map(main).collect()
}

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

async fn update_revisions(world: &World) -> Vec<Value> {
    let sets = world.list(&world.sets()).await;
    sets.iter().map(|set| set["status"]["updateRevision"].clone()).collect()
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

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_moves_every_stateful_sets_revision_takes_no_pod_down_paused_or_not() {
    for paused in [false, true] {
        let world = World::new("platform").await;
        world.settled_fleet(fleet(3, "db:1")).await;
        world.patch_fleet(json!({"spec": {"paused": paused}})).await;
        let (pods, revisions) = (world.pod_uids().await, update_revisions(&world).await);
        let wave = Wave::watch(&world, 3).await;
        let policy = Policy::install(&world, On::StatefulSets, Does::Annotate).await;
        relabel(&world, "storage").await;
        let moved = update_revisions(&world).await;
        assert!(moved.iter().zip(&revisions).all(|(now, before)| now != before), "{moved:?}");
        writes_nothing(&world).await;
        // The policy is removed; then the generations change for another reason.
        policy.remove(&world).await;
        relabel(&world, "other").await;
        for set in ["db-0", "db-1", "db-2"] {
            world.patch(&world.sets(), set, json!({"spec": {"minReadySeconds": 1}})).await;
        }
        writes_nothing(&world).await;
        assert_eq!(update_revisions(&world).await, moved, "what admission added is not put back");
        assert_eq!(world.pod_uids().await, pods);
        let seen = wave.at_most(&world, 0).await;
        assert!(seen.lives.values().all(|lives| lives.len() == 1), "{seen:#?}");
        let db = world.db().await;
        assert!(db["status"]["plan"].is_null() && db["status"]["rollout"].is_null(), "{db:#}");
        if !paused {
            rolls_in_its_wave(&world, 3).await;
        }
    }
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
async fn a_fleet_completes_where_images_of_pods_are_pinned() {
    a_fleet_under(On::Pods, Does::Pin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_completes_where_images_of_templates_are_sent_to_a_mirror() {
    a_fleet_under(On::StatefulSets, Does::Mirror).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_completes_where_a_proxy_is_put_first_into_pods() {
    a_fleet_under(On::Pods, Does::AddFirst).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_completes_where_a_proxy_is_put_first_into_templates() {
    a_fleet_under(On::StatefulSets, Does::AddFirst).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_completes_where_a_sidecar_is_added_to_templates() {
    a_fleet_under(On::StatefulSets, Does::AddLast).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_switched_on_over_a_fleet_at_rest_is_no_drift() {
    let world = World::new("platform").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    for (on, does) in
        [(On::StatefulSets, Does::Mirror), (On::StatefulSets, Does::AddFirst), (On::Pods, Does::Pin)]
    {
        Policy::install(&world, on, does).await;
        relabel(&world, &format!("{on:?}-{does:?}")).await;
        writes_nothing(&world).await;
        assert_eq!(world.pod_uids().await, pods, "{on:?} {does:?}");
        assert_eq!(current_images(&world).await, ["db:1"; 2], "{on:?} {does:?}");
    }
    // A recreated pod is rewritten, and is at its grant all the same.
    world.delete(&world.pods(), "db-1-0").await;
    world.until_serves("db-1-0", &pods[1]).await;
    writes_nothing(&world).await;
    let images = main_images(&world).await;
    assert!(images[1].starts_with("mirror.example/db:1") || images[1].contains('@'), "{images:?}");
    assert_eq!(current_images(&world).await, ["db:1"; 2]);
    rolls_in_its_wave(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_and_an_injector_that_begin_in_the_middle_of_a_rollout_do_not_hold_it_up() {
    let world = World::new("platform").await;
    world.settled_fleet(fleet(4, "db:1")).await;
    let wave = Wave::watch(&world, 4).await;
    world.steer("db-2-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-2-0", "the second node goes", leaves).await;
    for (on, does) in
        [(On::StatefulSets, Does::Mirror), (On::Pods, Does::AddFirst), (On::StatefulSets, Does::Annotate)]
    {
        Policy::install(&world, on, does).await;
    }
    world.patch_fleet(json!({"spec": {"template": {"metadata": {"labels": {"team": "storage"}}}}})).await;
    world.steer("db-2-0", "default").await;
    let done = world.until_applied().await;
    writes_nothing(&world).await;
    let seen = wave.at_most(&world, 1).await;
    for ordinal in 0..4 {
        assert_eq!(seen.replaced(&format!("db-{ordinal}-0")), 1, "{seen:#?}");
    }
    assert_eq!(current_images(&world).await, ["db:2"; 4]);
    assert_eq!(done["status"]["rollout"], Value::Null, "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blue_green_change_makes_a_set_beside_the_old_one_where_images_are_rewritten() {
    let world = World::new("platform").await;
    Policy::install(&world, On::Pods, Does::Pin).await;
    Policy::install(&world, On::StatefulSets, Does::AddFirst).await;
    let settings = json!({"promotion": "Manual", "retireDelaySeconds": 1});
    let first = world.settled_fleet(blue_green(2, settings)).await;
    assert_eq!(first["status"]["activeSet"], "first", "{first:#}");
    let wave = Wave::watch(&world, 2).await;
    world.set_image("db:2").await;
    let waiting = world.until_db("it waits for a person", stage("AwaitingPromotion")).await;
    Policy::install(&world, On::StatefulSets, Does::Annotate).await;
    relabel(&world, "storage").await;
    let seen = wave.at_most(&world, 0).await;
    assert!(["db-0-0", "db-1-0"].iter().all(|pod| seen.replaced(pod) == 0), "{seen:#?}");
    let promote = json!({"spec": {"forcePromote": waiting["status"]["requestedRolloutHash"]}});
    world.patch_fleet(promote).await;
    let done =
        world.until_db("it is promoted", |db| db["status"]["activeSet"] != "first" && is_over(db)).await;
    assert_eq!(done["status"]["activeSet"], set_of(&done), "{done:#}");
    assert_eq!(current_images(&world).await, ["db:2"; 2]);
    writes_nothing(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_target_is_not_taken_back_because_its_image_was_pinned() {
    let world = World::new("platform").await;
    let strategy = json!({"spec": {"updateStrategy": {"onStall": "Rollback", "progressDeadlineSeconds": 5}}});
    world.settled_fleet(with(fleet(2, "db:1"), &strategy)).await;
    Policy::install(&world, On::Pods, Does::Pin).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let db = world.until_quiet().await;
    assert!(db["status"]["rejected"].is_null(), "{db:#}");
    assert_eq!(current_images(&world).await, ["db:2"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_that_somebody_edited_under_a_policy_is_put_right_and_its_pod_stays() {
    let world = World::new("platform").await;
    Policy::install(&world, On::StatefulSets, Does::Annotate).await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    let edit = json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": "db:9"}]}}}});
    world.patch(&world.sets(), "db-0", edit).await;
    let right = |set: &Value| set["spec"]["template"]["spec"]["containers"][0]["image"] == "db:1";
    world.until(&world.sets(), "db-0", "its template is put right", right).await;
    writes_nothing(&world).await;
    assert_eq!(world.pod_uids().await, pods);
}

/// Resets a fleet's objects to those of the previous version of Windlass: templates and pods do not record what they
/// were made for, and statuses have no revisions.
async fn as_an_earlier_version_left_them(world: &World) {
    let words = json!({"windlass.dev/pod-template-hash": null, "windlass.dev/image": null, "windlass.dev/main-container": null});
    for node in world.list(&world.nodes()).await {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let pod = format!("{name}-0");
        let before = world.uid_of(&pod).await;
        let template = json!({"spec": {"template": {"metadata": {"annotations": words}}}});
        world.patch(&world.sets(), name, template).await;
        let observed = |s: &Value| s["status"]["observedGeneration"] == s["metadata"]["generation"];
        let set = world.until(&world.sets(), name, "it is seen", observed).await;
        world.delete(&world.pods(), &pod).await;
        let made = world.until_serves(&pod, &before).await;
        assert!(made["metadata"]["annotations"]["windlass.dev/image"].is_null(), "{made:#}");
        let mut conditions = node["status"]["conditions"].clone();
        for condition in conditions.as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" {
                let ready = made["status"]["conditions"]
                    .as_array()
                    .and_then(|c| c.iter().find(|c| c["type"] == "Ready"));
                condition["lastTransitionTime"] = ready.unwrap()["lastTransitionTime"].clone();
            }
        }
        let record =
            json!({"generation": set["metadata"]["generation"], "templateDigest": null, "revisions": null});
        let uid = &made["metadata"]["uid"];
        let status = json!({"status": {"podUID": uid, "statefulSet": record, "conditions": conditions}});
        world.patch_status(&world.nodes(), name, status).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_over_a_fleet_that_an_earlier_version_made_writes_nothing_and_a_policy_then_takes_no_pod_down()
 {
    let mut world = World::new("platform").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    world.kill_operator().await;
    as_an_earlier_version_left_them(&world).await;
    let (pods, revisions) = (world.pod_uids().await, update_revisions(&world).await);
    let mark = world.cp.audit_mark().await;
    world.start_operator(&[]).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(world.operator_writes(mark).await, [""; 0], "an upgrade writes nothing");
    assert_eq!(update_revisions(&world).await, revisions);
    assert_eq!(world.pod_uids().await, pods);

    let wave = Wave::watch(&world, 3).await;
    Policy::install(&world, On::StatefulSets, Does::Annotate).await;
    relabel(&world, "storage").await;
    writes_nothing(&world).await;
    assert_eq!(world.pod_uids().await, pods);
    wave.at_most(&world, 0).await;
    rolls_in_its_wave(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_a_hand_or_an_upgrade_of_kubernetes_rewrites_takes_no_pod_down() {
    let world = World::new("platform").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let (pods, before) = (world.pod_uids().await, update_revisions(&world).await);
    let revisions = world.api("apps/v1", "ControllerRevision");
    for name in &before {
        let revision = world.get(&revisions, name.as_str().unwrap_or_default()).await;
        assert!(revision.is_object(), "{name} is there");
        // A ControllerRevision's data is immutable: it is recreated with other bytes, under its name.
        let mut other = revision.clone();
        other["metadata"] = json!({
            "name": name, "labels": revision["metadata"]["labels"], "ownerReferences": revision["metadata"]["ownerReferences"],
        });
        other["data"]["spec"]["template"]["spec"]["schedulerName"] = json!("serialised-otherwise");
        world.delete(&revisions, name.as_str().unwrap_or_default()).await;
        let _ = world.try_create("apps/v1", "ControllerRevision", other).await;
    }
    relabel(&world, "storage").await;
    for (name, was) in ["db-0", "db-1"].iter().zip(&before) {
        // The controller only syncs a StatefulSet that changed.
        world.patch(&world.sets(), name, json!({"metadata": {"annotations": {"look": "again"}}})).await;
        let moved = |set: &Value| set["status"]["updateRevision"] != *was;
        world.until(&world.sets(), name, "its revision moves by itself", moved).await;
    }
    writes_nothing(&world).await;
    assert_eq!(world.pod_uids().await, pods);
    let db = world.db().await;
    assert!(db["status"]["plan"].is_null(), "{db:#}");
}
