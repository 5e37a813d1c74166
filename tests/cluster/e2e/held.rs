//! A revision that does not run is held, named, and left behind.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, with};

fn unconverged<'a>(db: &'a Value, node: &str) -> &'a Value {
    let list = db["status"]["rollout"]["unconverged"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().find(|u| u["name"] == node).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_is_held_and_named_and_its_fix_supersedes_it() {
    let world = World::new("held").await;
    let first = world.settled_fleet(fleet(3, "db:1")).await;
    let wave = Wave::watch(&world, 3).await;
    world.set_image("db:2-nope").await;
    let db = world
        .until_db("the node that cannot pull is named", |db| {
            unconverged(db, "db-2")["reason"] == "ImagePullBackOff"
                && db["status"]["rollout"]["nodes"]["failed"] == 1
        })
        .await;
    let status = &db["status"];
    assert!(unconverged(&db, "db-2")["message"].as_str().unwrap().contains("db:2-nope"), "{db:#}");
    assert_eq!(unconverged(&db, "db-0")["reason"], "WaitingForWave", "{db:#}");
    assert_eq!(status["phase"], "Upgrading", "{db:#}");
    assert_eq!(condition(&db, "Ready"), "False/NodesFailed", "{db:#}");
    assert_eq!(condition(&db, "UpToDate"), "Unknown/Applying", "{db:#}");
    assert_eq!(condition(&db, "RolloutInProgress"), "True/TemplateChanged", "{db:#}");
    assert_eq!(condition(&db, "Reconciling"), "True/Progressing", "{db:#}");
    assert!(status["rollout"]["message"].as_str().unwrap().contains("db-2"), "{db:#}");
    assert_eq!(status["rollout"]["summary"], "Updating 0/3");
    let node = world.get(&world.nodes(), "db-2").await;
    assert_eq!(node["status"]["phase"], "Failed", "{node:#}");
    assert_eq!(condition(&node, "Ready"), "False/NodesFailed", "{node:#}");
    let held = world.until_quiet().await;
    assert_eq!(world.images().await, ["db:1", "db:1", "db:2-nope"], "the others are left alone");
    assert_eq!(held["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    let (plan, target) = (
        held["status"]["plan"]["id"].clone(),
        held["status"]["requestedRolloutHash"].as_str().unwrap().to_owned(),
    );
    let started = held["status"]["rollout"]["startedAt"].clone();

    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    world.set_image("db:3").await;
    let superseded = |db: &Value| {
        db["status"]["rollout"]["targetHash"] == db["status"]["requestedRolloutHash"]
            && db["status"]["requestedRolloutHash"] != target
    };
    let moved = world.until_db("the fix takes the place of what it fixes", superseded).await;
    assert_ne!(moved["status"]["rollout"]["startedAt"], started, "the clock starts anew: {moved:#}");
    assert_ne!(moved["status"]["plan"]["id"], plan, "under a plan of its own: {moved:#}");
    let done = world.until_applied().await;
    assert_eq!(world.images().await, ["db:3", "db:3", "db:3"]);
    wave.at_most(&world, 1).await;
    let outcomes: Vec<&Value> =
        done["status"]["history"].as_array().unwrap().iter().map(|h| &h["outcome"]).collect();
    assert_eq!(outcomes, ["Superseded", "Complete"], "{done:#}");
    assert_eq!(done["status"]["history"][0]["planID"], plan);
    let told = world.until_event("db", "RolloutSuperseded").await;
    let fix = done["status"]["requestedRolloutHash"].as_str().unwrap();
    assert!(told.contains(&target[3..8]) && told.contains(&fix[3..8]), "it names both: {told}");
    assert_eq!(world.notes("RolloutSuperseded").await.len(), 1, "and is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_is_named_and_a_revert_leaves_the_untouched_nodes_alone() {
    let world = World::new("held").await;
    let first = world.settled_fleet(fleet(3, "db:1")).await;
    let before = world.pod_uids().await;
    world.set_image("db:2-crash").await;
    let db = world
        .until_db("the crash loop is named", |db| unconverged(db, "db-2")["reason"] == "CrashLoopBackOff")
        .await;
    assert!(unconverged(&db, "db-2")["message"].as_str().unwrap().contains("back-off"), "{db:#}");
    world.set_image("db:1").await;
    let back = world.until_applied().await;
    assert_eq!(world.images().await, ["db:1", "db:1", "db:1"]);
    let after = world.pod_uids().await;
    assert_eq!(after[..2], before[..2], "the nodes that were not touched are left alone");
    assert_ne!(after[2], before[2]);
    assert_eq!(
        back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"],
        "{back:#}"
    );
    assert_eq!(back["status"]["phase"], "Ready", "{back:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_scheduled_is_named_with_the_schedulers_sentence() {
    let world = World::new("held").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.patch_template(json!({"spec": {"nodeSelector": {"disk": "gold"}}})).await;
    let db =
        world.until_db("the node is named", |db| unconverged(db, "db-1")["reason"] == "Unschedulable").await;
    assert!(unconverged(&db, "db-1")["message"].as_str().unwrap().contains("nodes are available"), "{db:#}");
    let node = world.get(&world.nodes(), "db-1").await;
    assert_eq!(node["status"]["phase"], "Failed", "{node:#}");
    world.patch_template(json!({"spec": {"nodeSelector": null}})).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fleet_whose_image_cannot_be_pulled_is_failed_and_its_fix_reaches_all_at_once() {
    let world = World::new("held").await;
    world.fleet(fleet(3, "db:1-nope")).await;
    let db = world.until_db("every node failed", |db| db["status"]["phase"] == "Failed").await;
    assert_eq!(condition(&db, "Ready"), "False/NodesFailed", "{db:#}");
    assert!(db["status"]["lastCompletedRolloutHash"].is_null(), "{db:#}");
    world.set_image("db:2").await;
    let done = world.until_applied().await;
    assert_eq!(done["status"]["phase"], "Ready", "{done:#}");
    assert_eq!(world.images().await, ["db:2", "db:2", "db:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_outside_of_a_rollout_makes_the_fleet_degraded() {
    let world = World::new("held").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.steer("db-0-0", "crash").await;
    let db = world.until_db("the fleet is degraded", |db| db["status"]["phase"] == "Degraded").await;
    assert_eq!(condition(&db, "Ready"), "False/NodesFailed", "{db:#}");
    assert_eq!(condition(&db, "UpToDate"), "True/Applied", "what is wanted has not changed: {db:#}");
    world.steer("db-0-0", "default").await;
    let back = world.until_db("it is Ready again", |db| db["status"]["phase"] == "Ready").await;
    assert!(back["status"]["plan"].is_null(), "no rollout was needed: {back:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_on_around_a_stuck_node_where_the_wave_has_room() {
    let world = World::new("held").await;
    let strategy = json!({"updateStrategy": {"inPlace": {"maxUnavailable": 2}}});
    world.settled_fleet(with(fleet(4, "db:1"), &json!({"spec": strategy}))).await;
    world.steer("db-3-0", "unready").await;
    let down = |db: &Value| condition(db, "Ready") == "False/NodesNotReady";
    world.until_db("one node is down", down).await;
    let wave = Wave::watch(&world, 4).await;
    world.set_image("db:2").await;
    world
        .until_db("all but the stuck node are ready at the target", |db| {
            db["status"]["rollout"]["nodes"]["updated"] == 4 && db["status"]["readyReplicas"] == 3
        })
        .await;
    assert_eq!(world.images().await, ["db:2"; 4]);
    let held = world.db().await;
    assert_eq!(condition(&held, "UpToDate"), "Unknown/Applying", "it never completes over it: {held:#}");
    world.steer("db-3-0", "default").await;
    world.until_applied().await;
    wave.at_most(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_held_costs_no_writes() {
    let world = World::new("held").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    for image in ["db:2-nope", "db:2-unready"] {
        world.set_image(image).await;
        let at = |pod: &Value| pod["spec"]["containers"][0]["image"] == image;
        world.until(&world.pods(), "db-2-0", "the pod is made", at).await;
        world.until_quiet().await;
        let mark = world.cp.audit_mark().await;
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        assert_eq!(world.operator_writes(mark).await, Vec::<String>::new(), "{image}");
    }
    world.set_image("db:1").await;
    world.until_applied().await;
    world.until_quiet().await;
    // A pod that does not terminate blocks it in the same way.
    world.steer("db-2-0", "hold-terminating").await;
    world.set_image("db:3").await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-2-0", "it terminates", leaves).await;
    world.until_quiet().await;
    let mark = world.cp.audit_mark().await;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(world.operator_writes(mark).await, Vec::<String>::new());
}
