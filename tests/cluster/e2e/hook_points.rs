//! The points of hooks: each is in the plans that have it, and in no other.

use serde_json::{Value, json};

use crate::e2e::hook_plans::{approve_next, asked, does, person};
use crate::e2e::sets::{blue_green, nodes, selected, set_of, text};
use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

#[allow(clippy::needless_pass_by_value, reason = "a literal reads better so")]
fn with_hooks(fleet: Value, hooks: Value) -> Value {
    with(fleet, &json!({"spec": {"updateStrategy": {"hooks": hooks}}}))
}

/// True if this hook waits for a person, on this node; on the fleet if it is empty.
fn is_asked(hook: &str, node: &str) -> impl Fn(&Value) -> bool {
    move |db| asked(db).is_some_and(|(name, of, _)| (name.as_str(), of.as_str()) == (hook, node))
}

async fn approve(world: &World, db: &Value) {
    let (_, _, task) = asked(db).unwrap();
    does(world, &["approve", "nd/db", "--task", &task]).await;
}

/// Waits until a node's plan is over, and returns its task of a hook.
async fn task_of(world: &World, node: &str, hook: &str) -> Value {
    let is_over = |node: &Value| node["status"]["plan"]["state"] == "Complete";
    let node = world.until(&world.nodes(), node, "its plan is over", is_over).await;
    let tasks = node["status"]["plan"]["tasks"].as_array().unwrap();
    tasks.iter().find(|task| task["params"]["hook"] == hook).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_waits_before_it_and_is_complete_only_after_what_follows_it() {
    let mut world = World::new("hook-promote").await;
    let hooks = json!([
        person("before", "BeforePromotion"),
        person("after", "AfterPromotion"),
        person("last", "AfterRollout"),
        person("leave", "BeforeRemove"),
    ]);
    let fleet = with_hooks(blue_green(1, json!({"retireDelaySeconds": 1})), hooks);
    let first = world.settled_fleet(fleet).await;
    let old = text(&first["status"], "lastCompletedRolloutHash").to_owned();
    world.set_image("db:2").await;
    let mut so_far = Vec::new();
    world.until_db("a person is asked before it", is_asked("before", "")).await;
    assert_eq!((selected(&world).await, nodes(&world).await.len()), ("first".to_owned(), 2));
    approve_next(&mut world, &mut so_far).await;

    let after = world.until_db("a person is asked after it", is_asked("after", "")).await;
    assert_eq!(
        selected(&world).await,
        text(&after["status"]["rollout"], "targetHash")[3..8],
        "traffic has moved"
    );
    assert_eq!(nodes(&world).await.len(), 2, "the old set lives");
    assert_eq!(text(&after["status"], "lastCompletedRolloutHash"), old);
    assert_ne!(condition(&after, "UpToDate"), "True/Applied");
    approve_next(&mut world, &mut so_far).await;

    let leaves =
        world.until_db("a person is asked before the old node goes", is_asked("leave", "db-0")).await;
    assert_ne!(text(&leaves["status"], "lastCompletedRolloutHash"), old, "it is promoted");
    assert_eq!(nodes(&world).await.len(), 2, "it is not deleted before");
    approve_next(&mut world, &mut so_far).await;
    world.until_db("a person is asked last", is_asked("last", "")).await;
    assert_eq!(nodes(&world).await.len(), 1, "the old node is gone");
    approve_next(&mut world, &mut so_far).await;
    let done = world.until_db("it is over", |db| is_applied(db) && db["status"]["rollout"].is_null()).await;
    assert_eq!(selected(&world).await, set_of(&done));
    assert_eq!(world.images().await, ["db:2"]);
    assert_eq!(so_far.len(), 4);
    assert_eq!(world.notes("Promoted").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_asks_no_old_node_to_halt_before_its_hooks_are_done() {
    let mut world = World::new("hook-fork").await;
    let sidecars = Sidecars::start(&world).await;
    sidecars.reach(500);
    let hooks = json!([
        person("first", "BeforeRollout"),
        person("before", "BeforePromotion"),
        person("last", "AfterRollout")
    ]);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "hooks": hooks,
        "blueGreen": {"retireDelaySeconds": 1}});
    let spec = json!({"spec": {"updateStrategy": strategy, "service": {"ports": [{"port": 5432}]}}});
    world.settled_fleet(with(sidecars.fleet(1, "db:1"), &spec)).await;
    world.set_image("db:2").await;
    let mut so_far = Vec::new();
    world.until_db("a person is asked first", is_asked("first", "")).await;
    assert_eq!(nodes(&world).await, ["db-0"], "no new node is made before");
    approve_next(&mut world, &mut so_far).await;
    let before = world.until_db("a person is asked before it", is_asked("before", "")).await;
    assert_eq!(nodes(&world).await.len(), 2);
    assert_ne!(before["status"]["rollout"]["stage"], "Promoting", "it may still be given up");
    assert!(sidecars.halts().is_empty(), "nobody is asked to halt");
    approve_next(&mut world, &mut so_far).await;
    world.until_db("the old node was asked", |_| sidecars.halts() == [1000]).await;
    sidecars.reach(1000);
    world.until_db("a person is asked last", is_asked("last", "")).await;
    assert_ne!(selected(&world).await, "first");
    assert_eq!(nodes(&world).await.len(), 1, "the old node is gone");
    approve_next(&mut world, &mut so_far).await;
    world.until_db("it is over", |db| is_applied(db) && db["status"]["rollout"].is_null()).await;
    assert_eq!(sidecars.halts(), [1000], "once");
    assert_eq!(so_far.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_deleted_asks_nobody_before_its_nodes_go() {
    let world = World::new("hook-gone").await;
    let hooks = json!([person("leave", "BeforeRemove")]);
    world.settled_fleet(with_hooks(fleet(2, "db:1"), hooks)).await;
    world.delete(&world.fleets(), "db").await;
    for node in ["db-0", "db-1"] {
        world.until(&world.nodes(), node, "it is gone", Value::is_null).await;
    }
    assert_eq!(world.notes("ApprovalRequested").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_stateful_set_is_deleted_as_it_takes_leave_serves_until_its_hooks_are_done() {
    let world = World::new("hook-restored").await;
    world.settled_fleet(with_hooks(fleet(2, "db:1"), json!([person("leave", "BeforeRemove")]))).await;
    world.patch_fleet(json!({"spec": {"replicas": 1}})).await;
    let db = world.until_db("a person is asked", is_asked("leave", "db-1")).await;
    let pod = world.get(&world.pods(), "db-1-0").await;
    world.delete(&world.sets(), "db-1").await;
    world.until_serves("db-1-0", text(&pod["metadata"], "uid")).await;
    approve(&world, &db).await;
    world.until(&world.nodes(), "db-1", "it is gone", Value::is_null).await;
    world.until(&world.sets(), "db-1", "so is its StatefulSet", Value::is_null).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fix_of_a_broken_node_gets_through_and_what_was_skipped_says_why() {
    let world = World::new("hook-broken").await;
    let hooks = json!([person("drain", "BeforeNode")]);
    world.settled_fleet(with_hooks(fleet(2, "db:1"), hooks)).await;
    world.set_image("db:crash").await;
    let db = world.until_db("a person is asked", is_asked("drain", "db-1")).await;
    approve(&world, &db).await;
    let is_broken = |db: &Value| db["status"]["rollout"]["nodes"]["failed"] == 1;
    world.until_db("it does not run", is_broken).await;
    world.set_image("db:3").await;
    world.until_pod_runs("db-1-0", "db:3").await;
    let skipped = task_of(&world, "db-1", "drain").await;
    assert_eq!(skipped["state"], "Skipped", "{skipped}");
    assert!(text(&skipped, "message").contains("does not run"), "{skipped}");
    // The running one is waited for as before.
    let db = world.until_db("a person is asked", is_asked("drain", "db-0")).await;
    assert_eq!(world.images().await, ["db:1", "db:3"]);
    approve(&world, &db).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_and_another_operators_template_have_their_hooks_and_a_repair_and_a_new_node_have_none() {
    let mut world = World::new("hook-causes").await;
    let hooks = json!([
        person("first", "BeforeRollout"),
        person("drain", "BeforeNode"),
        person("look", "AfterNode"),
        person("last", "AfterRollout")
    ]);
    world.settled_fleet(with_hooks(fleet(1, "db:1"), hooks)).await;
    // Repairs and scale-ups run no hooks of the rollout.
    world.patch(&world.nodes(), "db-0", json!({"spec": {"image": "db:9"}})).await;
    world.until_pod_runs("db-0-0", "db:1").await;
    world.patch_fleet(json!({"spec": {"replicas": 2}})).await;
    world.until_pod_runs("db-1-0", "db:1").await;
    let is_calm = |db: &Value| is_applied(db) && db["status"]["plan"]["state"] != "Active";
    world.until_db("both are as they should be", is_calm).await;
    world.until_quiet().await;
    let repaired = world.notes("ApprovalRequested").await;
    // A repaired node is taken down all the same: the hooks before and after that apply to it, too.
    assert!(repaired.iter().all(|note| !note.contains("first") && !note.contains("last")), "{repaired:?}");

    let mut so_far = Vec::new();
    let all = [
        ("first", ""),
        ("drain", "db-1"),
        ("look", "db-1"),
        ("drain", "db-0"),
        ("look", "db-0"),
        ("last", ""),
    ];
    let names = |asked: &[(String, String, String)]| -> Vec<(String, String)> {
        asked.iter().map(|(hook, node, _)| (hook.clone(), node.clone())).collect()
    };
    let expected: Vec<(String, String)> =
        all.iter().map(|(h, n)| ((*h).to_owned(), (*n).to_owned())).collect();
    world.annotate_fleet("windlass.dev/restartedAt", json!("2030-01-31T12:00:00Z")).await;
    for _ in 0..all.len() {
        approve_next(&mut world, &mut so_far).await;
    }
    assert_eq!(names(&so_far), expected);
    world.until_db("it is restarted", is_calm).await;

    world.kill_operator().await;
    let _other = world.other_operator(|o| o.pod_annotation("example.com/platform", "2")).await;
    let mut so_far: Vec<(String, String)> = Vec::new();
    for (hook, node) in all {
        let db = world.until_db("a person is asked", is_asked(hook, node)).await;
        assert_eq!(condition(&db, "RolloutInProgress"), "True/OperatorDrift");
        approve(&world, &db).await;
        so_far.push((hook.to_owned(), node.to_owned()));
    }
    assert_eq!(so_far, expected);
    world.until_db("it is over", is_calm).await;
}
