//! Short traces that violate simpler rules of grants, one test each (found by a model): the wave is one node, the
//! higher ordinal goes first.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, fleet};

fn image(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn leaves(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// A fleet of two during its rollout of `db:2`: the template of db-1 is written, its pod still runs `db:1`.
async fn template_written_pod_serving(world: &World) -> Vec<String> {
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    world.allow_pod_deletes(false).await;
    world.set_image("db:2").await;
    world.until(&world.sets(), "db-1", "its template is written", |s| image(s) == "db:2").await;
    assert_eq!(world.pod_uids().await, before);
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_back_is_not_complete_over_a_template_that_was_already_written() {
    let world = World::new("trace").await;
    let before = template_written_pod_serving(&world).await;
    world.set_image("db:1").await;
    world.until_applied().await;
    for set in world.list(&world.sets()).await {
        assert_eq!(image(&set), "db:1", "{set:#}");
    }
    assert_eq!(world.pod_uids().await, before, "the pods were never at anything else");
    world.allow_pod_deletes(true).await;
    world.until_quiet().await;
    world.delete(&world.pods(), "db-1-0").await;
    let pod = world.until_serves("db-1-0", &before[1]).await;
    assert_eq!(
        pod["spec"]["containers"][0]["image"], "db:1",
        "an eviction does not bring the other: {pod:#}"
    );
    assert_eq!(world.uid_of("db-0-0").await, before[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_at_the_old_revision_does_not_count_as_updated_before_the_new_one_is_observed() {
    let world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    let wave = Wave::watch(&world, 2).await;
    world.freeze_set_status(true).await;
    world.set_image("db:2").await;
    world.until(&world.sets(), "db-1", "its template is written", |s| image(s) == "db:2").await;
    world.until_quiet().await;
    let db = world.db().await;
    assert_eq!(db["status"]["rollout"]["nodes"]["updated"], 0, "{db:#}");
    assert_eq!(world.pod_uids().await, before, "a pod that is deleted now could come back as it was");
    assert_eq!(image(&world.get(&world.sets(), "db-0").await), "db:1", "nor is the next one granted");
    world.freeze_set_status(false).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    let seen = wave.at_most(&world, 1).await;
    assert_eq!((seen.replaced("db-0-0"), seen.replaced("db-1-0")), (1, 1), "{seen:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_pod_while_another_is_in_flight_keeps_the_pod_that_comes_back() {
    let world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-0-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let second =
        world.until_serves("db-1-0", &before[1]).await["metadata"]["uid"].as_str().unwrap().to_owned();
    world.until(&world.pods(), "db-0-0", "it terminates", leaves).await;
    world.set_image("db:1").await;
    let back = |s: &Value| image(s) == "db:1";
    world.until(&world.sets(), "db-0", "the one in flight is granted the way back", back).await;
    world.delete(&world.pods(), "db-1-0").await;
    let third = world.until_serves("db-1-0", &second).await;
    world.until_quiet().await;
    assert_eq!(world.uid_of("db-1-0").await, third["metadata"]["uid"], "it serves, and stays");
    assert_eq!(world.images().await[1], "db:2");
    let wave = Wave::watch(&world, 2).await;
    world.steer("db-0-0", "default").await;
    world.until_applied().await;
    wave.at_most(&world, 1).await;
    assert_eq!(world.images().await, ["db:1", "db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_node_gets_the_fix_although_another_one_that_died_fills_the_wave() {
    let world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.set_image("db:2-nope").await;
    let failed = |n: &Value| n["status"]["phase"] == "Failed";
    world.until(&world.nodes(), "db-1", "it fails", failed).await;
    world.steer("db-0-0", "dead").await;
    let down = |n: &Value| n["status"]["conditions"][0]["status"] == "False";
    world.until(&world.nodes(), "db-0", "the other one dies", down).await;
    world.set_image("db:1").await;
    let pod = world.until_serves("db-1-0", "").await;
    assert_eq!(pod["spec"]["containers"][0]["image"], "db:1");
    world.steer("db-0-0", "default").await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_pod_under_a_template_that_was_written_too_early_survives_the_way_back() {
    let world = World::new("trace").await;
    let before = template_written_pod_serving(&world).await;
    world.steer("db-0-0", "unready").await;
    let down = |n: &Value| n["status"]["phase"] != "Running";
    world.until(&world.nodes(), "db-0", "the other one is down", down).await;
    world.set_image("db:1").await;
    world.until(&world.sets(), "db-1", "its template is taken back", |s| image(s) == "db:1").await;
    world.allow_pod_deletes(true).await;
    world.until_quiet().await;
    assert_eq!(world.uid_of("db-1-0").await, before[1]);
    world.steer("db-0-0", "default").await;
    world.until_applied().await;
    assert_eq!(world.pod_uids().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_being_scaled_away_still_counts() {
    let world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.patch(&world.nodes(), "db-1", hold).await;
    for replicas in [1, 2] {
        world.patch_fleet(json!({"spec": {"replicas": replicas}})).await;
        world.until(&world.nodes(), "db-1", "it is being scaled away", leaves).await;
        world.until_quiet().await;
        assert_eq!(world.uid_of("db-0-0").await, before[0], "replicas {replicas}: the other one waits");
    }
    world.patch(&world.nodes(), "db-1", json!({"metadata": {"finalizers": null}})).await;
    world.steer("db-1-0", "default").await;
    let wave = Wave::watch(&world, 2).await;
    world.until_applied().await;
    wave.at_most(&world, 1).await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_came_back_at_an_edit_is_not_taken_down_on_a_standing_grant() {
    let mut world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    world.kill_operator().await;
    let edit = json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": "db:9"}]}}}});
    world.patch(&world.sets(), "db-0", edit).await;
    let observed = |s: &Value| s["status"]["observedGeneration"] == s["metadata"]["generation"];
    world.until(&world.sets(), "db-0", "the edit is seen", observed).await;
    world.delete(&world.pods(), "db-0-0").await;
    let edited = world.until_serves("db-0-0", &before[0]).await;
    assert_eq!(edited["spec"]["containers"][0]["image"], "db:9");
    world.start_operator(&[]).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world.until_quiet().await;
    assert_eq!(
        world.uid_of("db-0-0").await,
        edited["metadata"]["uid"],
        "while another is in flight it stays"
    );
    let wave = Wave::watch(&world, 2).await;
    world.steer("db-1-0", "default").await;
    world.until_applied().await;
    wave.at_most(&world, 1).await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_is_lost_beside_a_broken_one_is_not_created_at_the_bad_image() {
    let world = World::new("trace").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.set_image("db:2-nope").await;
    let failed = |n: &Value| n["status"]["phase"] == "Failed";
    world.until(&world.nodes(), "db-1", "it fails", failed).await;
    let before = world.uid_of("db-0-0").await;
    world.delete(&world.nodes(), "db-0").await;
    let pod = world.until_serves("db-0-0", &before).await;
    assert_eq!(pod["spec"]["containers"][0]["image"], "db:1");
    world.until_quiet().await;
    assert_eq!(world.images().await, ["db:1", "db:2-nope"]);
    world.set_image("db:3").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:3", "db:3"]);
}
