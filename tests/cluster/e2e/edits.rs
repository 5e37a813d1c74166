//! People change objects that belong to Windlass.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet};

fn main_image(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn edited(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_stateful_set_is_put_right_under_its_running_pod() {
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
async fn kubectl_rollout_restart_of_a_stateful_set_is_answered() {
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

#[tokio::test(flavor = "multi_thread")]
async fn replicas_and_update_strategy_of_a_stateful_set_are_put_right_at_once() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let pod = world.uid_of("db-0-0").await;
    world.patch(&world.sets(), "db-0", json!({"spec": {"replicas": 2}})).await;
    world.until(&world.sets(), "db-0", "it has one replica", |s| s["spec"]["replicas"] == 1).await;
    world.until(&world.pods(), "db-0-1", "the other pod goes", Value::is_null).await;
    let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
    world.patch(&world.sets(), "db-0", rolling).await;
    let what = "it is OnDelete again";
    world.until(&world.sets(), "db-0", what, |s| s["spec"]["updateStrategy"]["type"] == "OnDelete").await;
    let quiet = world.until_quiet().await;
    assert!(quiet["status"]["plan"].is_null(), "{quiet:#}");
    assert_eq!(world.uid_of("db-0-0").await, pod);

    world.patch(&world.sets(), "db-0", json!({"spec": {"replicas": 0}})).await;
    world.until_serves("db-0-0", &pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_run_an_edited_template_are_replaced_in_waves_as_drift_of_children() {
    let mut world = World::new("edit").await;
    let first = world.settled_fleet(fleet(3, "db:1")).await;
    let before = world.pod_uids().await;
    world.kill_operator().await;
    for (ordinal, uid) in before.iter().enumerate() {
        world.patch(&world.sets(), &format!("db-{ordinal}"), edited("db:9")).await;
        let pod = format!("db-{ordinal}-0");
        let set = format!("db-{ordinal}");
        let observed = |s: &Value| s["status"]["observedGeneration"] == s["metadata"]["generation"];
        world.until(&world.sets(), &set, "the edit is seen", observed).await;
        world.delete(&world.pods(), &pod).await;
        world.until_serves(&pod, uid).await;
    }
    assert_eq!(world.images().await, ["db:9"; 3]);
    let wave = Wave::watch(&world, 3).await;
    world.start_operator(&[]).await;
    let drift = |db: &Value| db["status"]["rollout"]["strategy"] == "InPlace";
    let db = world.until_db("a rollout puts them right", drift).await;
    assert_eq!(condition(&db, "RolloutInProgress"), "True/ChildDrift", "{db:#}");
    let done = world.until_applied_again().await;
    assert_eq!(world.images().await, ["db:1"; 3]);
    let seen = wave.at_most(&world, 1).await;
    assert_eq!(seen.replaced("db-0-0"), 1, "{seen:#?}");
    assert_eq!(done["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(done["status"]["history"][0]["outcome"], "Complete", "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_image_of_a_child_is_put_right_and_no_pod_is_restarted_for_it() {
    let world = World::new("edit").await;
    let first = world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    world.patch(&world.nodes(), "db-0", json!({"spec": {"image": "db:9"}})).await;
    world.until_db("a rollout puts it right", |db| !db["status"]["plan"].is_null()).await;
    let done = world.until_applied_again().await;
    world.until_quiet().await;
    let node = world.get(&world.nodes(), "db-0").await;
    assert!(node["spec"]["image"].is_null(), "{node:#}");
    assert_eq!(world.pod_uids().await, pods, "it had no grant for it, so its pod never moved");
    assert_eq!(done["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert!(world.until_event("db", "RolloutStarted").await.contains("ChildDrift"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_is_edited_back_to_an_earlier_revision_is_drift_of_a_child_too() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    world.until_quiet().await;
    let pods = world.pod_uids().await;
    world.patch(&world.nodes(), "db-0", json!({"spec": {"image": "db:1"}})).await;
    let right = |n: &Value| n["spec"]["image"] == "db:2";
    world.until(&world.nodes(), "db-0", "it is put right", right).await;
    world.until_applied_again().await;
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, pods);
    let notes = world.notes("RolloutStarted").await;
    assert!(notes.iter().any(|n| n.contains("ChildDrift")), "{notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_target_takes_over_from_the_repair_of_drift() {
    let mut world = World::new("edit").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let before = world.pod_uids().await;
    world.kill_operator().await;
    for (ordinal, uid) in before.iter().enumerate() {
        let (set, pod) = (format!("db-{ordinal}"), format!("db-{ordinal}-0"));
        world.patch(&world.sets(), &set, edited("db:9")).await;
        let observed = |s: &Value| s["status"]["observedGeneration"] == s["metadata"]["generation"];
        world.until(&world.sets(), &set, "the edit is seen", observed).await;
        world.delete(&world.pods(), &pod).await;
        world.until_serves(&pod, uid).await;
    }
    world.steer("db-2-0", "hold-terminating").await;
    let wave = Wave::watch(&world, 3).await;
    world.start_operator(&[]).await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-2-0", "its repair has begun", leaves).await;
    world.set_image("db:2").await;
    let superseded = |db: &Value| condition(db, "RolloutInProgress") == "True/Superseded";
    world.until_db("the new target takes over", superseded).await;
    world.steer("db-2-0", "default").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 3]);
    wave.at_most(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_grant_of_a_child_is_put_right_and_says_child_drift() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let (pods, node) = (world.pod_uids().await, world.get(&world.nodes(), "db-1").await);
    let wrong = format!("v1:{}", "0".repeat(64));
    world.patch(&world.nodes(), "db-1", json!({"spec": {"grantedHash": wrong}})).await;
    let right = |n: &Value| n["spec"]["grantedHash"] == node["spec"]["grantedHash"];
    world.until(&world.nodes(), "db-1", "its grant is put right", right).await;
    let done = world.until_applied_again().await;
    assert_eq!(world.pod_uids().await, pods);
    assert_eq!(done["status"]["history"][0]["outcome"], "Complete", "{done:#}");
    let told = world.until_event("db", "RolloutStarted").await;
    assert!(told.contains("ChildDrift"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_whose_grant_was_taken_away_by_hand_is_granted_again_and_does_not_roll_by_itself() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    world.patch(&world.nodes(), "db-1", json!({"spec": {"grantedHash": null}})).await;
    let granted = |n: &Value| n["spec"]["grantedHash"].is_string();
    world.until(&world.nodes(), "db-1", "it is granted again", granted).await;
    world.until_applied_again().await;
    assert_eq!(world.pod_uids().await, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_were_stripped_come_back_on_every_kind_of_child() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let pods = world.pod_uids().await;
    let own =
        ["windlass.dev/deployment", "windlass.dev/node", "windlass.dev/set", "app.kubernetes.io/managed-by"];
    let stripped: serde_json::Map<String, Value> =
        own.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    for api in [world.nodes(), world.sets(), world.api("v1", "Service")] {
        world.patch(&api, "db-0", json!({"metadata": {"labels": stripped}})).await;
        let whole = |o: &Value| own.iter().all(|key| o["metadata"]["labels"][key].is_string());
        world.until(&api, "db-0", "its labels are back", whole).await;
    }
    let quiet = world.until_quiet().await;
    assert_eq!(world.pod_uids().await, pods);
    assert_eq!(quiet["status"]["phase"], "Ready", "{quiet:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_selector_of_a_service_is_put_right_and_a_strangers_label_stays() {
    let world = World::new("edit").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let services = world.api("v1", "Service");
    let before = world.get(&services, "db-0").await;
    let edit = json!({"metadata": {"labels": {"stranger": "x"}}, "spec": {"selector": {"app": "other"}}});
    world.patch(&services, "db-0", edit).await;
    let right = |s: &Value| s["spec"]["selector"] == before["spec"]["selector"];
    let after = world.until(&services, "db-0", "its selector is put right", right).await;
    assert_eq!(after["metadata"]["labels"]["stranger"], "x", "{after:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_node_whose_stateful_sets_status_is_late_has_not_drifted() {
    let world = World::new("late").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let suspend = async |suspend: bool| {
        world.patch(&world.nodes(), "db-0", json!({"spec": {"suspend": suspend}})).await;
    };
    suspend(true).await;
    world.until(&world.pods(), "db-0-0", "it is suspended", Value::is_null).await;
    world.until_quiet().await;
    world.freeze_set_status(true).await;
    suspend(false).await;
    // Its pod is Ready, but its template is not recorded yet.
    world.until_serves("db-0-0", "").await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let late = world.db().await;
    assert!(late["status"]["plan"].is_null(), "no rollout begins: {late:#}");
    world.freeze_set_status(false).await;
    let done = world.until_applied().await;
    world.until_db("it serves", |db| db["status"]["readyReplicas"] == 1).await;
    assert!(done["status"]["history"].is_null(), "{done:#}");
}
