//! Volume claims that grow in place.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use windlass_harness::controlplane::{FIXED_CLASS, OFFLINE_CLASS, STORAGE_CLASS};
use windlass_harness::kit::{Wave, World, condition, fleet, is_applied};

fn claims(class: &str, size: &str) -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}}}}])
}

fn with_claims(replicas: i64, class: &str) -> Value {
    let mut fleet = fleet(replicas, "db:1");
    fleet["spec"]["template"]["spec"]["volumeClaimTemplates"] = claims(class, "1Gi");
    fleet
}

async fn grow(world: &World, class: &str, size: &str) {
    let spec = json!({"template": {"spec": {"volumeClaimTemplates": claims(class, size)}}});
    world.patch_fleet(json!({"spec": spec})).await;
}

/// The capacities of the claims, and the sizes in the StatefulSets, by name.
async fn sizes(world: &World) -> BTreeMap<String, String> {
    let claims = world.list(&world.api("v1", "PersistentVolumeClaim")).await;
    let of_claims = claims.iter().map(|claim| (claim, &claim["status"]["capacity"]["storage"]));
    let sets = world.list(&world.sets()).await;
    let of_set = |set: &Value| {
        set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"].clone()
    };
    let of_sets: Vec<(&Value, Value)> = sets.iter().map(|set| (set, of_set(set))).collect();
    let all = of_claims.chain(of_sets.iter().map(|(set, size)| (*set, size)));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|(object, size)| (text(&object["metadata"]["name"]), text(size))).collect()
}

async fn until_grown(world: &World, size: &str) -> Value {
    let until = tokio::time::Instant::now() + 3 * windlass_harness::kit::PATIENCE;
    loop {
        let db = world.db().await;
        let sizes = sizes(world).await;
        let is_over = is_applied(&db) && condition(&db, "RolloutInProgress") == "False/RolloutComplete";
        if is_over && sizes.values().all(|of| of == size) {
            return db;
        }
        assert!(tokio::time::Instant::now() < until, "not grown to {size}: {sizes:?} {db:#}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_grow_under_running_pods() {
    let mut world = World::new("grows").await;
    world.settled_fleet(with_claims(2, STORAGE_CLASS)).await;
    let (pods, sets) = (world.uids(&world.pods()).await, world.uids(&world.sets()).await);
    let before = world.db().await;
    grow(&world, STORAGE_CLASS, "2Gi").await;
    // Its StatefulSet may be deleted and not created again yet.
    world.kill_operator().await;
    world.start_operator(&[]).await;
    let db = until_grown(&world, "2Gi").await;
    assert_eq!(world.uids(&world.pods()).await, pods, "no pod goes");
    let replaced = world.uids(&world.sets()).await;
    assert!(replaced.iter().all(|(name, uid)| sets[name] != *uid), "{replaced:?}");
    assert_eq!(db["status"]["lastCompletedRolloutHash"], before["status"]["lastCompletedRolloutHash"]);
    let last =
        db["status"]["history"].as_array().and_then(|history| history.last()).cloned().unwrap_or_default();
    assert_eq!((&last["recipe"], &last["outcome"]), (&json!("GrowClaims"), &json!("Complete")));

    // A volume cannot shrink, and new nodes get the new size.
    grow(&world, STORAGE_CLASS, "1Gi").await;
    let refused = |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec";
    let shrunk = world.until_db("it is refused", refused).await["status"]["conditions"].to_string();
    assert!(shrunk.contains("cannot shrink to 1Gi") && shrunk.contains("data-db-0-0 has 2Gi"), "{shrunk}");
    grow(&world, STORAGE_CLASS, "2Gi").await;
    world.patch_fleet(json!({"spec": {"replicas": 3}})).await;
    until_grown(&world, "2Gi").await;
    assert_eq!(sizes(&world).await.len(), 6);
    world.until_quiet().await;

    // The next release replaces each pod once.
    let wave = Wave::watch(&world, 3).await;
    world.set_image("db:2").await;
    world.until_applied_again().await;
    assert_eq!(wave.at_most(1).await.went, ["db-2-0", "db-1-0", "db-0-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_restart_in_the_wave_if_their_driver_needs_it() {
    let world = World::new("restarts").await;
    world.settled_fleet(with_claims(2, OFFLINE_CLASS)).await;
    let wave = Wave::watch(&world, 2).await;
    grow(&world, OFFLINE_CLASS, "2Gi").await;
    until_grown(&world, "2Gi").await;
    // The first whose driver reports that it needs a restart goes first.
    let mut went = wave.at_most(1).await.went;
    went.sort_unstable();
    assert_eq!(went, ["db-0-0", "db-1-0"]);
    world.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn class_that_does_not_grow_is_reported_and_nothing_is_written() {
    let world = World::new("fixed").await;
    world.settled_fleet(with_claims(2, FIXED_CLASS)).await;
    grow(&world, FIXED_CLASS, "2Gi").await;
    let refused = |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec";
    let db = world.until_db("it is refused", refused).await;
    let conditions = db["status"]["conditions"].to_string();
    assert!(
        conditions.contains("data-db-0-0") && conditions.contains("allowVolumeExpansion"),
        "{conditions}"
    );
    for node in world.list(&world.nodes()).await {
        assert!(node["spec"]["claimSizes"].is_null(), "{node:#}");
    }
    grow(&world, FIXED_CLASS, "1Gi").await;
    world.until_applied().await;
}
