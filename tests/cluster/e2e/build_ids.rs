//! The nine cases of a build ID, a test for each, and IDs that the API server refuses.

use serde_json::{Value, json};

use crate::e2e::sets::{blue_green, is_over, names, nodes, set_of, stage};
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// The sets of these build IDs: `printf v1 | sha256sum`.
const SET_OF_V1: &str = "3bfc2";
const SET_OF_V2: &str = "fb04d";

fn id(id: &str) -> Value {
    json!({"spec": {"unsafeCustomBuildID": id}})
}

/// A fleet of one node with a build ID; empty for none.
fn under(build_id: &str, retire_delay_seconds: i64) -> Value {
    with(blue_green(1, json!({"retireDelaySeconds": retire_delay_seconds})), &id(build_id))
}

fn is_moved(db: &Value) -> bool {
    is_over(db) && db["status"]["activeSet"] != "first"
}

#[tokio::test(flavor = "multi_thread")]
async fn unset_the_build_id_is_made_from_the_tag_and_the_hash_and_any_change_makes_a_new_set() {
    let world = World::new("idunset").await;
    let first = world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 1}))).await;
    assert_eq!(first["status"]["buildID"], format!("1-{}", set_of(&first)));
    world.patch_template(json!({"metadata": {"labels": {"a": "b"}}})).await;
    let done = world.until_db("it is over", is_moved).await;
    assert_eq!(done["status"]["activeSet"], set_of(&done));
    assert_eq!(done["status"]["buildID"], format!("1-{}", set_of(&done)));
    assert_eq!(nodes(&world).await, [format!("db-{}-0", set_of(&done))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_id_that_is_set_for_the_first_time_makes_a_new_set_of_an_equal_template() {
    let world = World::new("idfirst").await;
    world.settled_fleet(under("", 1)).await;
    world.patch_fleet(id("v1")).await;
    let done = world.until_db("it is over", is_moved).await;
    assert_eq!(done["status"]["activeSet"], SET_OF_V1);
    assert_eq!(done["status"]["buildID"], "v1");
    assert_eq!(world.images().await, ["db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_build_id_with_another_template_updates_the_active_set_in_place() {
    let world = World::new("idsame").await;
    world.settled_fleet(with(under("v1", 1), &json!({"spec": {"replicas": 2}}))).await;
    world.set_image("db:2").await;
    let done = world.until_db("it is over", |db| is_over(db) && db["status"]["history"].is_array()).await;
    assert_eq!(done["status"]["plan"]["recipe"], "InPlace");
    assert_eq!(done["status"]["activeSet"], "first");
    assert_eq!(nodes(&world).await, ["db-0", "db-1"]);
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    assert_eq!(names(&world, "v1", "PersistentVolumeClaim").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_build_id_and_template_do_nothing_and_replicas_only_scale() {
    let world = World::new("idscale").await;
    world.settled_fleet(under("v1", 1)).await;
    let before = world.pod_uids().await;
    world.patch_fleet(with(id("v1"), &json!({"spec": {"replicas": 2}}))).await;
    let grown =
        world.until_db("it has grown", |db| is_applied(db) && db["status"]["readyReplicas"] == 2).await;
    assert!(grown["status"]["plan"].is_null(), "{grown:#}");
    assert_eq!(nodes(&world).await, ["db-0", "db-1"]);
    assert_eq!(world.pod_uids().await[0], before[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_build_id_makes_a_new_set_even_of_an_equal_template() {
    let world = World::new("idnew").await;
    world.settled_fleet(under("v1", 600)).await;
    world.patch_fleet(id("v2")).await;
    let moved = world.until_db("traffic moved", stage("Retiring")).await;
    assert_eq!(moved["status"]["activeSet"], SET_OF_V2);
    assert_eq!(nodes(&world).await, ["db-0".to_owned(), format!("db-{SET_OF_V2}-0")]);
    assert_eq!(world.images().await, ["db:1", "db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_build_id_whose_set_still_lives_takes_that_set_at_the_template_now_asked_for() {
    let world = World::new("idlives").await;
    world.settled_fleet(under("v1", 600)).await;
    world.patch_fleet(id("v2")).await;
    world.until_db("traffic moved", stage("Retiring")).await;
    let made = world.notes("NodeCreated").await.len();
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    world.patch_fleet(with(id("v1"), &json!({"spec": {"template": {"spec": {"image": "db:3"}}}}))).await;
    let back =
        world.until_db("it serves again", |db| is_applied(db) && db["status"]["activeSet"] == "first").await;
    assert_eq!(back["status"]["buildID"], "v1");
    world.until_serves("db-0-0", "").await;
    assert_eq!(world.images().await[0], "db:3");
    assert_eq!(world.notes("NodeCreated").await.len(), made, "no node was made");
    assert_eq!(names(&world, "v1", "PersistentVolumeClaim").await, claims);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_build_id_whose_set_is_gone_makes_a_new_set_on_claims_of_its_own() {
    let world = World::new("idgone").await;
    world.settled_fleet(under("v1", 1)).await;
    for (build_id, set) in
        [("v2", SET_OF_V2.to_owned()), ("v1", SET_OF_V1.to_owned()), ("v2", format!("{SET_OF_V2}-2"))]
    {
        world.patch_fleet(id(build_id)).await;
        let is_so = |db: &Value| is_over(db) && db["status"]["buildID"] == build_id;
        let done = world.until_db("it is over", is_so).await;
        assert_eq!(done["status"]["activeSet"], set.as_str());
        assert_eq!(nodes(&world).await, [format!("db-{set}-0")]);
    }
    assert_eq!(names(&world, "v1", "PersistentVolumeClaim").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_id_that_is_removed_makes_a_new_set_under_the_generated_one() {
    let world = World::new("idrm").await;
    world.settled_fleet(under("v1", 1)).await;
    world.patch_fleet(json!({"spec": {"unsafeCustomBuildID": null}})).await;
    let done = world.until_db("it is over", is_moved).await;
    assert_eq!(done["status"]["activeSet"], set_of(&done));
    assert_eq!(done["status"]["buildID"], format!("1-{}", set_of(&done)));
}

/// Removes a fleet's whole status while no operator runs, and changes its spec.
async fn forget(world: &mut World, change: Value) {
    world.kill_operator().await;
    world.patch_fleet(change).await;
    let status: json_patch::Patch =
        serde_json::from_value(json!([{"op": "replace", "path": "/status", "value": {}}])).unwrap();
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Json::<()>(status);
    world.fleets().patch_status("db", &params, &patch).await.expect("it is forgotten");
    world.start_operator(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_recorded_hash_are_recorded_from_what_runs_and_nothing_restarts() {
    let mut world = World::new("idrecord").await;
    world.settled_fleet(under("v1", 1)).await;
    world.patch_fleet(id("v2")).await;
    world.until_db("it is over", is_moved).await;
    let done = world.until_quiet().await;
    let pods = world.pod_uids().await;
    forget(&mut world, json!({})).await;
    let found = world.until_db("it is recorded", is_over).await;
    for field in ["activeSet", "buildID", "lastCompletedRolloutHash", "currentRevision"] {
        assert_eq!(found["status"][field], done["status"][field], "{field}");
    }
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_recorded_hash_that_run_something_else_are_rolled_as_their_drift() {
    let mut world = World::new("iddrift").await;
    world.settled_fleet(under("v1", 1)).await;
    forget(&mut world, json!({"spec": {"template": {"spec": {"image": "db:2-slow"}}}})).await;
    let drift = |db: &Value| condition(db, "RolloutInProgress") == "True/ChildDrift";
    world.until_db("it is rolled as a drift", drift).await;
    world.until_db("it is over", is_over).await;
    assert_eq!(world.images().await, ["db:2-slow"]);
    assert_eq!(nodes(&world).await, ["db-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_id_of_a_wrong_form_or_of_a_fleet_in_place_is_refused_with_a_sentence() {
    let world = World::new("idbad").await;
    let create =
        async |object: Value| world.try_create("windlass.dev/v1alpha1", "NodeDeployment", object).await;
    let long = "a".repeat(64);
    for bad in ["-bad", "bad-", "a b", "ä", long.as_str()] {
        let sentence = create(under(bad, 1)).await.unwrap_err();
        assert!(sentence.contains("unsafeCustomBuildID"), "{bad:?}: {sentence}");
    }
    let sentence = create(with(fleet(1, "db:1"), &id("v1"))).await.unwrap_err();
    assert!(sentence.contains("unsafeCustomBuildID") && sentence.contains("InPlace"), "{sentence}");
    create(under(&"a".repeat(63), 1)).await.expect("63 characters are no more than are allowed");
    world.until_applied().await;
}
