//! The target changes during a rollout.

use serde_json::{Value, json};

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
async fn a_third_version_in_the_middle_takes_over_and_every_node_ends_at_it() {
    let world = World::new("middle").await;
    let before = in_the_middle(&world).await;
    let wave = Wave::watch(&world, 3).await;
    let second = world.db().await["status"]["requestedRolloutHash"].as_str().unwrap().to_owned();
    world.set_image("db:3").await;
    let superseded = |db: &Value| outcomes(db) == ["Superseded"];
    let db = world.until_db("the first rollout is superseded", superseded).await;
    assert_eq!(db["status"]["history"][0]["targetHash"], second, "{db:#}");
    assert_eq!(db["status"]["rollout"]["targetHash"], db["status"]["requestedRolloutHash"]);
    world.steer("db-1-0", "default").await;
    let done = world.until_applied().await;
    assert_eq!(world.images().await, ["db:3", "db:3", "db:3"]);
    assert_eq!(outcomes(&done), ["Superseded", "Complete"], "{done:#}");
    let seen = wave.at_most(&world, 1).await;
    assert_eq!(seen.replaced("db-0-0"), 1, "the untouched one goes to the third at once: {seen:#?}");
    assert_eq!(seen.lives["db-0-0"][0], before[0]);
    assert_eq!(world.notes("RolloutSuperseded").await.len(), 1);
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

#[tokio::test(flavor = "multi_thread")]
async fn changing_ones_mind_quickly_ends_at_the_last_word() {
    let world = World::new("middle").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let wave = Wave::watch(&world, 3).await;
    for (image, pause) in [("db:2", 300), ("db:3", 700), ("db:1", 100), ("db:2", 900), ("db:4", 0)] {
        world.set_image(image).await;
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
    }
    let done = world.until_applied().await;
    assert_eq!(world.images().await, ["db:4", "db:4", "db:4"], "{done:#}");
    wave.at_most(&world, 1).await;
    let history = done["status"]["history"].as_array().unwrap();
    let (last, others) = history.split_last().unwrap();
    assert_eq!(last["outcome"], "Complete", "{done:#}");
    let is_over = |h: &Value| h["outcome"] == "Superseded" || h["outcome"] == "Complete";
    assert!(!others.is_empty() && others.iter().all(is_over), "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_applies_at_once_in_the_middle_does_not_supersede_anything() {
    let world = World::new("middle").await;
    in_the_middle(&world).await;
    let plan = world.db().await["status"]["plan"]["id"].clone();
    let changes = json!({"spec": {
        "minReadySeconds": 1, "revisionHistoryLimit": 5,
        "template": {"metadata": {"labels": {"team": "a"}}, "spec": {"serviceAnnotations": {"x": "y"}}},
    }});
    world.patch_fleet(changes).await;
    let labelled = |node: &Value| node["metadata"]["labels"]["team"] == "a";
    world.until(&world.nodes(), "db-0", "it is labelled while the rollout waits", labelled).await;
    let annotated = |service: &Value| service["metadata"]["annotations"]["x"] == "y";
    world.until(&world.api("v1", "Service"), "db-1", "so is a held node's Service", annotated).await;
    world.steer("db-1-0", "default").await;
    let done = world.until_applied().await;
    assert_eq!(done["status"]["plan"]["id"], plan, "{done:#}");
    assert_eq!(outcomes(&done), ["Complete"]);
}
