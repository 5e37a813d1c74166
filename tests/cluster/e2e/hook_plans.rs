//! Hooks in plans: each point in order, the effects of failures, and the verbs, with kills in between.

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use crate::e2e::sets::text;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

pub fn person(name: &str, at: &str) -> Value {
    json!({"name": name, "at": at, "approval": {}})
}

/// A hook that fails after two seconds.
pub fn fails(name: &str, at: &str, on_failure: &str) -> Value {
    json!({"name": name, "at": at, "approval": {}, "timeoutSeconds": 2, "onFailure": on_failure})
}

/// The hook that waits for a person: its name, its node, its task.
pub fn asked(db: &Value) -> Option<(String, String, String)> {
    let hooks = db["status"]["hooks"].as_array()?;
    let hook = hooks.iter().find(|hook| hook["state"] == "AwaitingApproval")?;
    Some((text(hook, "hook").to_owned(), text(hook, "node").to_owned(), text(hook, "taskID").to_owned()))
}

pub async fn does(world: &World, words: &[&str]) {
    let ran = windlass(world, words).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}: {}", ran.out);
}

/// Waits for a new approval request, kills the operator, and approves.
pub async fn approve_next(world: &mut World, before: &mut Vec<(String, String, String)>) {
    let known: Vec<String> = before.iter().map(|(_, _, task)| task.clone()).collect();
    let is_new = |db: &Value| asked(db).is_some_and(|(_, _, task)| !known.contains(&task));
    let db = world.until_db("a person is asked", is_new).await;
    let next = asked(&db).unwrap();
    world.kill_operator().await;
    does(world, &["approve", "nd/db", "--task", &next.2]).await;
    world.start_operator(&[]).await;
    before.push(next);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_at_each_point_once_though_the_operator_is_killed_at_each() {
    let mut world = World::new("points").await;
    let hooks = json!([
        person("before", "BeforeRollout"),
        person("drain", "BeforeNode"),
        person("look", "AfterNode"),
        person("step", "AfterStep"),
        person("after", "AfterRollout"),
        person("leave", "BeforeRemove"),
    ]);
    let strategy = json!({"inPlace": {"steps": [1, "100%"]}, "hooks": hooks});
    world.fleet(with(fleet(2, "db:1"), &json!({"spec": {"updateStrategy": strategy}}))).await;
    let first = world.until_applied().await;
    assert!(first["status"]["plan"].is_null());
    world.set_image("db:2").await;
    let expected = [
        ("before", ""),
        ("drain", "db-1"),
        ("look", "db-1"),
        ("step", ""),
        ("drain", "db-0"),
        ("look", "db-0"),
        ("after", ""),
    ];
    let mut asked_so_far = Vec::new();
    for (hook, node) in expected {
        let images = world.images().await;
        approve_next(&mut world, &mut asked_so_far).await;
        let (name, of, _) = asked_so_far.last().unwrap();
        assert_eq!((name.as_str(), of.as_str()), (hook, node), "{asked_so_far:?}");
        if hook == "before" {
            assert_eq!(images, ["db:1", "db:1"]);
        }
    }
    let done = world
        .until_db("it is complete", |db| is_applied(db) && db["status"]["plan"]["state"] == "Complete")
        .await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    let tasks = done["status"]["plan"]["tasks"].as_array().unwrap();
    assert!(tasks.iter().all(|task| task["state"] == "Complete"), "{tasks:#?}");
    // An operator that is killed between a task's write and its event loses the event; none comes twice.
    let mut notes = world.notes("ApprovalRequested").await;
    let told = notes.len();
    notes.sort();
    notes.dedup();
    assert!(told == notes.len() && (1..=expected.len()).contains(&told), "{notes:#?}");

    world.patch_fleet(json!({"spec": {"replicas": 1}})).await;
    approve_next(&mut world, &mut asked_so_far).await;
    let (name, of, _) = asked_so_far.last().unwrap();
    assert_eq!((name.as_str(), of.as_str()), ("leave", "db-1"));
    world.until(&world.nodes(), "db-1", "it leaves", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_holds_its_plan_until_a_person_decides_by_a_verb() {
    let mut world = World::new("hook-holds").await;
    let hooks = json!({"spec": {"updateStrategy": {"hooks": [fails("drain", "BeforeNode", "Hold")]}}});
    world.fleet(with(fleet(2, "db:1"), &hooks)).await;
    world.until_applied().await;
    world.set_image("db:2").await;
    let is_held = |db: &Value| {
        condition(db, "UpToDate") == "False/HookFailed" && condition(db, "Stalled") == "True/HookFailed"
    };
    let held = world.until_db("it holds", is_held).await;
    let said =
        held["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "UpToDate").unwrap();
    assert!(
        text(said, "message").contains("hook drain of node db-1 failed: no success within 2 s"),
        "{said}"
    );
    assert_eq!(held["status"]["plan"]["state"], "Active");
    assert_eq!(
        world.told_once("db", "HookFailed").await.split(':').next(),
        Some("hook drain of node db-1 failed")
    );
    world.kill_operator().await;
    world.start_operator(&[]).await;

    for attempt in [2, 3] {
        does(&world, &["retry", "nd/db"]).await;
        let again = |node: &Value| {
            let tasks = node["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
            tasks.iter().any(|task| {
                task["params"]["hook"] == "drain" && task["attempt"] == attempt && task["state"] == "Failed"
            })
        };
        world.until(&world.nodes(), "db-1", "it is tried again, and fails", again).await;
        world.until_db("it holds again", is_held).await;
    }
    assert_eq!(world.images().await, ["db:1", "db:1"]);
    does(&world, &["skip", "nd/db"]).await;
    world.until_pod_runs("db-1-0", "db:2").await;
    world.until_db("the next holds", |db| is_held(db) && db["status"]["hooks"][0]["node"] == "db-0").await;
    does(&world, &["abort", "nd/db"]).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    assert_eq!(world.images().await, ["db:1", "db:2"]);
    assert_eq!(world.notes("SkipRefused").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_promotion_that_fails_traffic_is_back_whenever_the_operator_is_killed() {
    let mut world = World::new("hook-back").await;
    let strategy = json!({"type": "BlueGreen", "blueGreen": {"retireDelaySeconds": 1},
        "hooks": [fails("look", "AfterPromotion", "Rollback")]});
    let spec = json!({"updateStrategy": strategy, "service": {"ports": [{"port": 80}]}});
    world.fleet(with(fleet(1, "db:1"), &json!({"spec": spec}))).await;
    let first = world.until_applied().await;
    let services = world.api("v1", "Service");
    let selected = |service: &Value| text(&service["spec"]["selector"], "windlass.dev/set").to_owned();
    world.set_image("db:2").await;
    world.until(&services, "db", "traffic has moved", |s| selected(s) != "first").await;
    world.kill_operator().await;
    let moved = world.db().await;
    assert_eq!(moved["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    world.start_operator(&[]).await;
    world.until(&services, "db", "traffic is back", |s| selected(s) == "first").await;
    world.kill_operator().await;
    world.start_operator(&[]).await;
    let back = world.until_db("it is recorded", |db| condition(db, "UpToDate") == "False/RolledBack").await;
    assert_eq!(back["status"]["rejected"]["outcome"], "RolledBack");
    assert_eq!(back["status"]["activeSet"], "first");
    let images = async || world.images().await;
    for _ in 0..200 {
        if images().await == ["db:1"] {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(images().await, ["db:1"], "the new set goes");
    assert_eq!(selected(&world.get(&services, "db").await), "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_that_cannot_be_carried_out_are_named_and_nothing_moves() {
    let world = World::new("hook-refused").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    for (hook, says) in [
        (json!({"name": "far", "at": "BeforeNode", "http": {"url": "http://elsewhere.test/"}}), "hook far: "),
        (
            json!({"name": "odd", "at": "BeforeNode", "http": {"url": "http://{{podIP}}/", "success": "status =="}}),
            "hook odd: ",
        ),
        (
            json!({"name": "early", "at": "BeforeRollout", "http": {"url": "http://{{podIP}}/"}}),
            "hook early: ",
        ),
        (
            json!({"name": "what", "at": "BeforeNode", "http": {"url": "http://{{podIP}}/{{colour}}"}}),
            "hook what: ",
        ),
        (
            json!({"name": "deaf", "at": "BeforeNode", "query": {"promql": "up", "success": "scalar > 0.0"}}),
            "hook deaf: ",
        ),
    ] {
        world
            .patch_fleet(json!({"spec": {"updateStrategy": {"hooks": [hook]},
            "template": {"spec": {"image": "db:2"}}}}))
            .await;
        let is_refused = |db: &Value| {
            let said = db["status"]["conditions"].as_array().cloned().unwrap_or_default();
            said.iter().any(|c| {
                c["reason"] == "InvalidSpec" && c["type"] == "UpToDate" && text(c, "message").contains(says)
            })
        };
        world.until_db(&format!("{says}is refused"), is_refused).await;
    }
    assert_eq!(world.images().await, ["db:1"]);
    world.patch_fleet(json!({"spec": {"updateStrategy": {"hooks": []}}})).await;
    world.until_applied().await;
    world.until_pod_runs("db-0-0", "db:2").await;
}
