//! People change objects that belong to Windlass.

use serde_json::{Value, json};

use windlass_harness::kit::{World, fleet};

fn main_image(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn edited(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_statefulset_is_reverted_without_pod_restart() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    world.patch(&world.sets(), "db-0", edited("db:9")).await;
    world.until(&world.sets(), "db-0", "its template is put right", |s| main_image(s) == "db:1").await;
    let told = world.until_event("db", "RolloutStarted").await;
    assert!(told.contains("ChildDrift"), "{told}");
    world
        .until_db("the fleet has said that it drifted", |db| {
            db["status"]["history"][0]["outcome"] == "Complete"
        })
        .await;
    let quiet = world.until_quiet().await;
    assert_eq!(quiet["status"]["history"].as_array().map(Vec::len), Some(1), "once: {quiet:#}");
    assert_eq!(main_image(&world.get(&world.sets(), "db-0").await), "db:1");
    assert_eq!(world.pod_uids().await, pods, "its pod was never at the edit, and stays");
    assert_eq!(quiet["status"]["phase"], "Ready", "{quiet:#}");
    let node = world.get(&world.nodes(), "db-0").await;
    assert_eq!(node["status"]["phase"], "Running", "{node:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_rollout_restart_of_statefulset_is_answered() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    let restart =
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2030-01-31T12:00:00Z"}}});
    world.patch(&world.sets(), "db-0", json!({"spec": {"template": restart}})).await;
    let told = world.until_event("db-0", "RequestIgnored").await;
    let command = format!("run windlass restart nd/db -n {}", world.ns);
    assert!(told.contains("kubectl rollout restart") && told.ends_with(&command), "{told}");
    let is_back = |s: &Value| {
        s["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_null()
    };
    world.until(&world.sets(), "db-0", "its template is put back", is_back).await;
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, pods);
    let node = world.get(&world.nodes(), "db-0").await;
    assert!(!node["status"].to_string().contains("kubectl"), "it is over: {node:#}");
}
