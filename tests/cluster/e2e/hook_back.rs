//! Rollback from each point that allows it, and which hooks it skips.

use serde_json::{Value, json};

use crate::e2e::hook_plans::{asked, does, fails, person};
use crate::e2e::sets::{blue_green, nodes, selected, text};
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

fn listed(hooks: &Value) -> Value {
    json!({"spec": {"updateStrategy": {"hooks": hooks}}})
}

/// The hooks of the fleet's own plan, each with its state.
fn of_fleet(db: &Value) -> Vec<String> {
    let tasks = db["status"]["plan"]["tasks"].as_array().into_iter().flatten();
    let of = tasks.filter_map(|task| Some((task["params"]["hook"].as_str()?, text(task, "state"))));
    of.map(|(hook, state)| format!("{hook}={state}")).collect()
}

/// True if the rollout was rolled back because of a hook, and the rollback is over.
fn is_back(hook: &str) -> impl Fn(&Value) -> bool {
    move |db| {
        let rejected = &db["status"]["rejected"];
        condition(db, "UpToDate") == "False/RolledBack"
            && rejected["outcome"] == "RolledBack"
            && text(rejected, "message").contains(&format!("hook {hook}"))
            && db["status"]["rollout"].is_null()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_each_point_of_a_rollout_in_place_takes_it_back_and_nobody_is_asked_on_the_way() {
    let world = World::new("hook-rollback").await;
    let first = world.settled_fleet(fleet(2, "db:1")).await;
    let last = text(&first["status"], "lastCompletedRolloutHash");
    let granted = world.get(&world.nodes(), "db-1").await["spec"]["grantedHash"].clone();
    let points = ["BeforeRollout", "BeforeNode", "AfterNode", "AfterRollout"];
    for (round, at) in points.into_iter().enumerate() {
        let hook = format!("look-{round}");
        let passes = |name: &str, at: &str| json!({"name": name, "at": at, "wait": {"seconds": 1}});
        let hooks = json!([
            passes("first", "BeforeRollout"),
            passes("last", "AfterRollout"),
            fails(&hook, at, "Rollback")
        ]);
        world.patch_fleet(listed(&hooks)).await;
        world.set_image(&format!("db:{}", round + 2)).await;
        if at == "AfterNode" {
            // The updated node is rolled back, and its hooks run again: a failure there cannot be rolled back, and
            // holds.
            let failed = |node: &Value| {
                let tasks = node["status"]["plan"]["tasks"].as_array().into_iter().flatten();
                let failed = tasks.filter(|task| task["params"]["hook"] == hook.as_str());
                node["status"]["plan"]["targetHash"] == granted
                    && failed.into_iter().any(|task| task["state"] == "Failed")
            };
            let node = world.until(&world.nodes(), "db-1", "it has failed on its way back", failed).await;
            let of_node = text(&node["status"]["plan"], "id").to_owned();
            let held = |db: &Value| {
                condition(db, "UpToDate") == "False/HookFailed"
                    && db["status"]["plan"]["targetHash"] == last
                    && text(&db["status"]["hooks"][0], "taskID").starts_with(&of_node)
            };
            world.until_db("the way back holds", held).await;
            does(&world, &["skip", "nd/db"]).await;
        }
        let back = world.until_db(&format!("it is back from {at}"), is_back(&hook)).await;
        assert_eq!(of_fleet(&back), [""; 0], "{at}: nobody is asked on the way back");
        assert_eq!(text(&back["status"], "lastCompletedRolloutHash"), last, "{at}");
        assert_eq!(world.images().await, ["db:1", "db:1"], "{at}");
        let history = back["status"]["history"].as_array().unwrap();
        let given_up = history.iter().rev().find(|entry| entry["outcome"] == "RolledBack").unwrap();
        assert_eq!(text(given_up, "reason"), "HookFailed", "{at}: {given_up}");
        world.set_image("db:1").await;
        world.until_applied().await;
    }
    assert_eq!(world.notes("RolledBack").await.len(), points.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_promotion_the_new_set_goes_and_traffic_never_moved() {
    let world = World::new("hook-unpromoted").await;
    let first = world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 1}))).await;
    for (round, at) in ["BeforeRollout", "BeforePromotion"].into_iter().enumerate() {
        let hook = format!("look-{round}");
        world.patch_fleet(listed(&json!([fails(&hook, at, "Rollback")]))).await;
        let mark = world.cp.audit_mark().await;
        world.set_image(&format!("db:{}", round + 2)).await;
        let back = world.until_db(&format!("it is back from {at}"), is_back(&hook)).await;
        world.until_quiet().await;
        assert_eq!(
            (selected(&world).await, nodes(&world).await),
            ("first".to_owned(), vec!["db-0".to_owned()])
        );
        assert_eq!(back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
        let writes = world.operator_writes(mark).await;
        assert!(writes.iter().all(|line| !line.contains("services/db ")), "{at}: {writes:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_stall_that_goes_back_nor_an_abort_asks_anybody() {
    let world = World::new("hook-ways").await;
    let passes = |name: &str, at: &str| json!({"name": name, "at": at, "wait": {"seconds": 1}});
    let hooks = json!([passes("first", "BeforeRollout"), passes("last", "AfterRollout")]);
    let strategy = json!({"onStall": "Rollback", "progressDeadlineSeconds": 3, "hooks": hooks});
    let first =
        world.settled_fleet(with(fleet(2, "db:1"), &json!({"spec": {"updateStrategy": strategy}}))).await;
    world.set_image("db:crash").await;
    let there =
        world.until_db("a node is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    assert_eq!(of_fleet(&there), ["first=Complete", "last=Pending"]);
    let is_over =
        |db: &Value| condition(db, "UpToDate") == "False/RolledBack" && db["status"]["rollout"].is_null();
    let back = world.until_db("it is back", is_over).await;
    assert_eq!(of_fleet(&back), [""; 0]);
    assert_eq!(back["status"]["plan"]["targetHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(world.images().await, ["db:1", "db:1"]);

    // An abort leaves each node at what it runs, without a plan.
    world
        .patch_fleet(listed(&json!([person("first", "BeforeRollout"), person("last", "AfterRollout")])))
        .await;
    world.set_image("db:3").await;
    let waits = world.until_db("a person is asked", |db| asked(db).is_some()).await;
    does(&world, &["abort", "nd/db"]).await;
    let aborted = world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    let rests = world.until_quiet().await;
    for seen in [&aborted, &rests] {
        assert_eq!(seen["status"]["plan"]["id"], waits["status"]["plan"]["id"]);
        assert_eq!(asked(seen), None);
    }
    assert_eq!(world.notes("ApprovalRequested").await.len(), 1);
    assert_eq!(world.images().await, ["db:1", "db:1"]);
}

/// A hook of the fleet's own plan is skipped, and a failed one at the end is retried, with the same verbs as those of
/// nodes.
#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_the_fleet_are_skipped_and_tried_again_by_a_verb_and_a_pause_stops_their_time() {
    let world = World::new("hook-verbs").await;
    let hooks = json!([fails("backup", "BeforeRollout", "Hold"), fails("report", "AfterRollout", "Hold")]);
    world.settled_fleet(with(fleet(1, "db:1"), &listed(&hooks))).await;
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.set_image("db:2").await;
    // Paused for longer than the hook's time-out: its clock stands.
    let waits = |db: &Value| {
        let is_said =
            text(&db["status"]["rollout"], "message").contains("waiting for the fleet to be resumed");
        is_said && asked(db).is_some() && db["status"]["plan"]["tasks"][0]["deadline"].is_null()
    };
    world.until_db("it waits to be resumed", waits).await;
    world.throughout(std::time::Duration::from_secs(4), &world.fleets(), "db", "it waits", waits).await;
    assert_eq!(world.notes("HookFailed").await, [""; 0]);
    does(&world, &["resume", "nd/db"]).await;
    let is_held = |hook: &'static str| {
        move |db: &Value| {
            let failed = &db["status"]["hooks"][0];
            condition(db, "UpToDate") == "False/HookFailed"
                && failed["hook"] == hook
                && failed["state"] == "Failed"
        }
    };
    let held = world.until_db("the first holds", is_held("backup")).await;
    assert_eq!(world.images().await, ["db:1"]);
    does(&world, &["skip", "nd/db"]).await;
    let last = world.until_db("the last holds", is_held("report")).await;
    assert_eq!(of_fleet(&last), ["backup=Skipped", "report=Failed"]);
    assert_eq!(world.images().await, ["db:2"]);
    assert_eq!(last["status"]["lastCompletedRolloutHash"], held["status"]["lastCompletedRolloutHash"]);
    does(&world, &["retry", "nd/db"]).await;
    let asks = world.until_db("it is tried again", |db| asked(db).is_some()).await;
    does(&world, &["approve", "nd/db", "--task", &asked(&asks).unwrap().2]).await;
    let done = world.until_db("it is complete", is_applied).await;
    assert_eq!(of_fleet(&done), ["backup=Skipped", "report=Complete"]);
    assert_eq!(done["status"]["plan"]["id"], held["status"]["plan"]["id"], "in the same plan");
}
