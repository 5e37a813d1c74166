//! What the failure of a hook leads to, and what is no failure.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use crate::e2e::hook_plans::{approve_next, asked, does, fails};
use crate::e2e::hooks::Scene;
use crate::e2e::sets::{blue_green, nodes, selected, text};
use windlass_harness::kit::peers::Manner;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

fn is_held(db: &Value) -> bool {
    condition(db, "UpToDate") == "False/HookFailed" && condition(db, "Stalled") == "True/HookFailed"
}

fn message(object: &Value, type_: &str) -> String {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|c| c["type"] == type_);
    found.map(|c| text(c, "message").to_owned()).unwrap_or_default()
}

fn tasks(object: &Value) -> Vec<Value> {
    object["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default()
}

fn task(object: &Value, hook: &str) -> Value {
    tasks(object).into_iter().find(|task| task["params"]["hook"] == hook).unwrap_or_default()
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {value}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_promotion_that_holds_a_retry_goes_on_in_the_same_plan() {
    let mut world = World::new("hook-hold").await;
    let hooks = json!([fails("look", "AfterPromotion", "Hold")]);
    let fleet = with(
        blue_green(1, json!({"retireDelaySeconds": 1})),
        &json!({"spec": {"updateStrategy": {"hooks": hooks}}}),
    );
    let first = world.settled_fleet(fleet).await;
    world.set_image("db:2").await;
    let held = world.until_db("it holds", is_held).await;
    assert!(message(&held, "UpToDate").contains("hook look failed: no success within 2 s"), "{held:#}");
    assert_eq!(held["status"]["rollout"]["stage"], "Promoting");
    assert_ne!(selected(&world).await, "first", "traffic has moved");
    assert_eq!(nodes(&world).await.len(), 2, "the old set lives");
    assert_eq!(held["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(world.notes("HookFailed").await.len(), 1);
    let plan = held["status"]["plan"]["id"].clone();
    does(&world, &["retry", "nd/db"]).await;
    approve_next(&mut world, &mut Vec::new()).await;
    let done = world
        .until_db("it is complete", |db| is_applied(db) && db["status"]["plan"]["state"] == "Complete")
        .await;
    assert_eq!((&done["status"]["plan"]["id"], &task(&done, "look")["attempt"]), (&plan, &json!(2)));
    world.until(&world.nodes(), "db-0", "the old set goes", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_promotion_that_is_taken_back_traffic_moves_in_one_write_and_the_target_is_rejected() {
    let world = World::new("hook-takeback").await;
    let hooks = json!([fails("look", "AfterPromotion", "Rollback")]);
    let fleet = with(
        blue_green(1, json!({"retireDelaySeconds": 1})),
        &json!({"spec": {"updateStrategy": {"hooks": hooks}}}),
    );
    let first = world.settled_fleet(fleet).await;
    let service = world.api("v1", "Service");
    world.set_image("db:2").await;
    let selected_set = |s: &Value| text(&s["spec"]["selector"], "windlass.dev/set").to_owned();
    world.until(&service, "db", "traffic has moved", |s| selected_set(s) != "first").await;
    let target = world.db().await["status"]["rollout"]["targetHash"].clone();
    let mark = world.cp.audit_mark().await;
    let back = world.until_db("it is back", |db| condition(db, "UpToDate") == "False/RolledBack").await;
    let writes = world.operator_writes(mark).await;
    let of_service: Vec<&String> = writes.iter().filter(|line| line.contains("services/db ")).collect();
    assert_eq!(of_service, ["patch services/db "], "one write: {writes:#?}");
    assert_eq!(selected(&world).await, "first");
    let rejected = &back["status"]["rejected"];
    assert_eq!((&rejected["outcome"], &rejected["hash"]), (&json!("RolledBack"), &target), "{rejected}");
    assert!(text(rejected, "message").contains("hook look"), "{rejected}");
    assert_eq!(back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert!(world.told_once("db", "RolledBack").await.contains("traffic is back at set first"));
    world.until_db("the new set is gone", |db| db["status"]["rollout"].is_null()).await;
    world.until_quiet().await;
    assert_eq!((nodes(&world).await.len(), world.images().await), (1, vec!["db:1".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_is_passed_over_is_the_message_of_a_task_that_was_skipped() {
    let world = World::new("hook-continue").await;
    let hooks =
        json!([fails("backup", "BeforeRollout", "Continue"), fails("drain", "BeforeNode", "Continue")]);
    let fleet = with(fleet(1, "db:1"), &json!({"spec": {"updateStrategy": {"hooks": hooks}}}));
    world.settled_fleet(fleet).await;
    world.set_image("db:2").await;
    let done = world
        .until_db("it is complete", |db| is_applied(db) && db["status"]["plan"]["state"] == "Complete")
        .await;
    let node = world.get(&world.nodes(), "db-0").await;
    for (object, hook) in [(&done, "backup"), (&node, "drain")] {
        let task = task(object, hook);
        assert_eq!(task["state"], "Skipped", "{task}");
        assert!(text(&task, "message").contains("no success within 2 s; "), "{task}");
    }
    let mut told = world.notes("HookFailed").await;
    told.sort();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].starts_with("hook backup failed, and it goes on without it: "), "{told:#?}");
    assert!(told[1].starts_with("hook drain of node db-0 failed, and it goes on without it: "), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_a_step_takes_the_rollout_back_as_a_stall_would() {
    let world = World::new("hook-step").await;
    let hooks = json!([fails("step", "AfterStep", "Rollback")]);
    let strategy = json!({"type": "InPlace", "inPlace": {"steps": [1, "100%"]}, "hooks": hooks});
    let fleet = with(fleet(3, "db:1"), &json!({"spec": {"updateStrategy": strategy}}));
    let first = world.settled_fleet(fleet).await;
    world.set_image("db:2").await;
    let stopped = world.until_db("it stops after a step", |db| asked(db).is_some()).await;
    assert_eq!(world.images().await, ["db:1", "db:1", "db:2"], "one node has moved");
    let target = stopped["status"]["rollout"]["targetHash"].clone();
    let over =
        |db: &Value| condition(db, "UpToDate") == "False/RolledBack" && db["status"]["rollout"].is_null();
    let back = world.until_db("it is back", over).await;
    let rejected = &back["status"]["rejected"];
    assert_eq!((&rejected["outcome"], &rejected["hash"]), (&json!("RolledBack"), &target), "{rejected}");
    assert!(text(rejected, "message").contains("hook step"), "{rejected}");
    assert_eq!(world.images().await, ["db:1", "db:1", "db:1"]);
    assert_eq!(back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    let history = back["status"]["history"].as_array().unwrap();
    let given_up = history.iter().find(|entry| entry["outcome"] == "RolledBack").unwrap();
    assert_eq!(text(given_up, "reason"), "HookFailed", "{given_up}");
    assert_eq!(world.notes("ApprovalRequested").await.len(), 1, "nobody is asked on the way back");
}

fn drain(seconds: i64) -> Value {
    json!([{"name": "drain", "at": "BeforeNode", "timeoutSeconds": seconds, "http": {
        "url": "http://{{podIP}}:PORT/drain", "method": "POST", "success": "body.state == 'drained'",
        "failure": "body.state == 'failed'", "intervalSeconds": 1, "requestTimeoutSeconds": 1}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_tried_again_is_the_same_task_and_says_which_attempt_it_is() {
    let mut scene = Scene::new("hook-again").await;
    scene.fleet(1, json!({"type": "InPlace", "hooks": drain(600)})).await;
    scene.peer.answers(Manner::Says(200, r#"{"state":"failed","why":"no quorum"}"#.to_owned()));
    scene.world.set_image("db:2").await;
    let held = scene.world.until_db("it holds", is_held).await;
    assert!(message(&held, "UpToDate").contains("no quorum"), "{held:#}");
    scene.world.told_once("db", "HookFailed").await;
    // A failed request is not repeated by itself, not even by another operator.
    let times = scene.peer.asked().len();
    scene.kill().await;
    scene.world.until_quiet().await;
    assert_eq!(scene.peer.asked().len(), times);
    scene.peer.answers(Manner::Says(200, r#"{"state":"drained"}"#.to_owned()));
    let ran = windlass(&scene.world, &["retry", "nd/db"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    scene.world.until_applied().await;
    let asked = scene.peer.asked();
    let attempts: Vec<&str> = asked.iter().map(|asked| asked.headers["windlass-attempt"].as_str()).collect();
    assert_eq!(attempts, ["1", "2"], "{asked:#?}");
    assert_eq!(scene.peer.tasks().len(), 1, "one task: {asked:#?}");
    assert_eq!(scene.world.images().await, ["db:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_and_a_5xx_are_tried_until_the_time_is_up_whose_clock_outlives_the_operator() {
    let mut scene = Scene::new("hook-clock").await;
    scene.fleet(1, json!({"type": "InPlace", "hooks": drain(15)})).await;
    scene.peer.answers(Manner::Swallows);
    scene.world.set_image("db:2").await;
    let nodes = scene.world.nodes();
    let says =
        |words: &'static str| move |node: &Value| text(&task(node, "drain"), "message").contains(words);
    let node = scene.world.until(&nodes, "db-0", "no answer is said", says("did not answer in time")).await;
    let begun = task(&node, "drain");
    assert_eq!((time(&begun["deadline"]) - time(&begun["startedAt"])).num_seconds(), 15, "{begun}");
    scene.peer.answers(Manner::Says(503, "rebalancing".to_owned()));
    scene.world.until(&nodes, "db-0", "the 503 is said", says("answered 503: rebalancing")).await;
    scene.kill().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.kill().await;
    let is_failed = |node: &Value| task(node, "drain")["state"] == "Failed";
    let failed = task(&scene.world.until(&nodes, "db-0", "its time is up", is_failed).await, "drain");
    for field in ["id", "startedAt", "deadline"] {
        assert_eq!(failed[field], begun[field], "{field}");
    }
    let took = (time(&failed["finishedAt"]) - time(&failed["startedAt"])).num_milliseconds();
    assert!((15_000..25_000).contains(&took), "{took} ms: {failed}");
    let said = text(&failed, "message");
    assert!(said.contains("no success within 15 s") && said.contains("answered 503: rebalancing"), "{said}");
    assert_eq!(scene.peer.tasks().len(), 1);
    let held = scene.world.until_db("it holds", is_held).await;
    let said = message(&held, "UpToDate");
    assert!(said.contains("hook drain of node db-0") && said.contains("answered 503: rebalancing"), "{said}");
    assert_eq!(scene.world.images().await, ["db:1"]);
}
