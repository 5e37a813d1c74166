//! A changed list of hooks applies at once: tasks of an active plan that have not begun follow the new list.

use serde_json::{Value, json};

use crate::e2e::hook_plans::{asked, does, person};
use windlass_harness::kit::{World, fleet, is_applied, with};

fn listed(hooks: &Value) -> Value {
    json!({"spec": {"updateStrategy": {"hooks": hooks}}})
}

/// The hooks of a plan, each with its state.
fn carried(object: &Value) -> Vec<String> {
    let tasks = object["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    let of =
        tasks.iter().filter_map(|task| Some((task["params"]["hook"].as_str()?, task["state"].as_str()?)));
    of.map(|(hook, state)| format!("{hook}={state}")).collect()
}

fn said_of(object: &Value, hook: &str) -> String {
    let tasks = object["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    let task = tasks.into_iter().find(|task| task["params"]["hook"] == hook).unwrap_or_default();
    task["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_changes_in_the_middle_of_a_plan_counts_at_once() {
    let mut world = World::new("hook-list").await;
    let first = json!([person("first", "BeforeNode"), person("never", "AfterRollout")]);
    world.fleet(with(fleet(2, "db:1"), &listed(&first))).await;
    world.until_applied().await;
    world.set_image("db:2").await;
    let is_asked = |hook: &'static str, node: &'static str| {
        move |db: &Value| asked(db).is_some_and(|(name, of, _)| (name.as_str(), of.as_str()) == (hook, node))
    };
    let begun = world.until_db("the first is asked", is_asked("first", "db-1")).await;
    assert_eq!(carried(&begun), ["never=Pending"]);

    // Another list, for the next operator: the hook that had begun is no longer in it.
    world.kill_operator().await;
    let second = json!([person("second", "BeforeNode"), person("last", "AfterRollout")]);
    world.patch_fleet(listed(&second)).await;
    world.start_operator(&[]).await;
    let db = world.until_db("the second is asked", is_asked("second", "db-1")).await;
    assert_eq!(db["status"]["plan"]["id"], begun["status"]["plan"]["id"], "it is the same plan");
    let node = world.get(&world.nodes(), "db-1").await;
    assert_eq!(carried(&node), ["first=Skipped", "second=Running"]);
    assert!(said_of(&node, "first").contains("there is no hook first"), "{}", said_of(&node, "first"));
    assert_eq!(world.images().await, ["db:1", "db:1"]);

    // One that has begun continues with its hook's new settings.
    let mut third = second.clone();
    third[0]["timeoutSeconds"] = json!(1);
    third[0]["onFailure"] = json!("Continue");
    world.patch_fleet(listed(&third)).await;
    let db = world.until_db("the last is asked", is_asked("last", "")).await;
    assert_eq!(carried(&db), ["last=Running"]);
    for (name, hooks) in [("db-1", &["first=Skipped", "second=Skipped"][..]), ("db-0", &["second=Skipped"])] {
        let node = world.get(&world.nodes(), name).await;
        assert_eq!(carried(&node), hooks, "{name}");
        assert!(said_of(&node, "second").contains("no success within 1 s"), "{}", said_of(&node, "second"));
    }

    // Without hooks the plan completes; and a list that changes at rest starts no rollout.
    world.patch_fleet(listed(&json!([]))).await;
    let done = world.until_db("it is complete", is_applied).await;
    assert_eq!(done["status"]["plan"]["id"], begun["status"]["plan"]["id"]);
    let pods = world.pod_uids().await;
    world.patch_fleet(listed(&first)).await;
    let rested = world.until_quiet().await;
    assert_eq!(rested["status"]["plan"]["id"], done["status"]["plan"]["id"]);
    does(&world, &["wait", "nd/db"]).await;
    assert_eq!(world.pod_uids().await, pods);
}
