//! A pod that the API server refuses: its StatefulSet is accepted, so only the StatefulSet controller knows why.

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition, fleet, is_applied};

fn of_a_ghost(mut fleet: Value) -> Value {
    fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["serviceAccountName"] = json!("ghost");
    fleet
}

fn account(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_pod_is_named_with_the_api_server_message() {
    let world = World::new("refused").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let patch = of_a_ghost(json!({}));
    world.patch_fleet(patch).await;
    let named = |db: &Value| {
        let first = &db["status"]["rollout"]["unconverged"][0];
        first["name"] == "db-2" && first["message"].as_str().is_some_and(|m| m.contains("ghost"))
    };
    let db = world.until_db("the refusal is named", named).await;
    assert_eq!(db["status"]["rollout"]["unconverged"][0]["reason"], "Missing", "{db:#}");
    assert_eq!(db["status"]["rollout"]["nodes"]["failed"], 1, "{db:#}");
    assert_eq!(condition(&db, "Ready"), "False/NodesFailed", "{db:#}");
    let node = world.get(&world.nodes(), "db-2").await;
    assert_eq!(node["status"]["phase"], "Failed", "{node:#}");
    let problem = node["status"]["problem"]["message"].as_str().unwrap().to_owned();
    assert!(problem.starts_with("the API server rejects its pod: pods \"db-2-0\" is forbidden"), "{problem}");
    // Nothing has to be changed once the obstacle is gone.
    world.create("v1", "ServiceAccount", account("ghost")).await;
    world.until_applied().await;
    let node = world.get(&world.nodes(), "db-2").await;
    assert_eq!(node["status"]["phase"], "Running", "{node:#}");
}

/// The API server is asked in a dry run whether it takes a template, which is about one StatefulSet more.
#[tokio::test(flavor = "multi_thread")]
async fn exhausted_quota_does_not_block_template_changes() {
    let world = World::new("usedup").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let what = "count/statefulsets.apps";
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {what: "2"}}});
    world.create("v1", "ResourceQuota", quota).await;
    let counted = |quota: &Value| quota["status"]["used"][what] == "2";
    world.until(&world.api("v1", "ResourceQuota"), "few", "it is counted", counted).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    let at = "2099-01-01T00:00:00Z";
    let before = world.uids(&world.pods()).await;
    world.patch_fleet(json!({"metadata": {"annotations": {"windlass.dev/restartedAt": at}}})).await;
    world.until_db("it is restarted", |db| is_applied(db) && db["status"]["restartedAt"] == at).await;
    let after = world.uids(&world.pods()).await;
    assert!(before.iter().all(|(name, uid)| after[name] != *uid), "{before:?} {after:?}");
}
