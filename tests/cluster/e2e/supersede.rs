//! The target changes during a rollout.

use serde_json::Value;

use windlass_harness::kit::{Wave, World, fleet};

/// A fleet of three during its rollout of `db:2`: db-2 is done, db-1's pod is terminating, db-0 is untouched. Returns
/// the UIDs of the old pods.
async fn in_the_middle(world: &World) -> Vec<String> {
    world.settled_fleet(fleet(3, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    world.until_serves("db-2-0", &before[2]).await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    before
}

fn outcomes(db: &Value) -> Vec<&str> {
    let history = db["status"]["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    history.iter().map(|h| h["outcome"].as_str().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revert_in_the_middle_brings_back_what_was_and_leaves_untouched_nodes_alone() {
    let world = World::new("middle").await;
    let before = in_the_middle(&world).await;
    let wave = Wave::watch(&world, 3).await;
    let first = world.db().await["status"]["lastCompletedRolloutHash"].clone();
    world.set_image("db:1").await;
    let superseded =
        |db: &Value| outcomes(db) == ["Superseded"] && db["status"]["rollout"]["targetHash"] == first;
    world.until_db("the way back begins", superseded).await;
    // Before that, the StatefulSet controller makes the pod anew as the superseded rollout had it.
    let back = |set: &Value| set["spec"]["template"]["spec"]["containers"][0]["image"] == "db:1";
    world.until(&world.sets(), "db-1", "the way back reaches its StatefulSet", back).await;
    world.steer("db-1-0", "default").await;
    let done = world.until_applied().await;
    assert_eq!(world.images().await, ["db:1", "db:1", "db:1"]);
    let after = world.pod_uids().await;
    assert_eq!(after[0], before[0], "the untouched node keeps its pod");
    let seen = wave.at_most(&world, 1).await;
    assert_eq!(seen.replaced("db-1-0"), 1, "what was terminating comes back as it was: {seen:#?}");
    assert_eq!(done["status"]["lastCompletedRolloutHash"], first, "{done:#}");
    assert_eq!(outcomes(&done), ["Superseded", "Complete"], "{done:#}");
    for set in world.list(&world.sets()).await {
        assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "db:1", "{set:#}");
    }
}
