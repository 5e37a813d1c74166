//! Objects of a fleet are lost, at rest and during a rollout. And a node without a fleet.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet};

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deleted_comes_back_as_it_was_and_the_others_are_left_alone() {
    let world = World::new("lost").await;
    let first = world.settled_fleet(fleet(3, "db:1")).await;
    let (pods, node) = (world.pod_uids().await, world.get(&world.nodes(), "db-1").await);
    world.delete(&world.nodes(), "db-1").await;
    let another = |n: &Value| !n.is_null() && uid(n) != uid(&node) && n["status"]["phase"] == "Running";
    world.until(&world.nodes(), "db-1", "it is created again and runs", another).await;
    let db = world.until_db("all nodes are ready", |db| db["status"]["phase"] == "Ready").await;
    assert_eq!(condition(&db, "UpToDate"), "True/Applied", "{db:#}");
    assert!(db["status"]["plan"].is_null(), "a repair is no rollout: {db:#}");
    assert_eq!(db["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    let after = world.pod_uids().await;
    assert_eq!((&after[0], &after[2]), (&pods[0], &pods[2]));
    assert_eq!(world.images().await, ["db:1", "db:1", "db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_that_is_deleted_comes_back_and_its_node_runs_again() {
    let world = World::new("lost").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let set = world.get(&world.sets(), "db-0").await;
    let (zero, one) = (world.uid_of("db-0-0").await, world.uid_of("db-1-0").await);
    world.delete(&world.sets(), "db-0").await;
    let another = |s: &Value| !s.is_null() && uid(s) != uid(&set);
    world.until(&world.sets(), "db-0", "it is created again", another).await;
    world.until_serves("db-0-0", &zero).await;
    let whole =
        |n: &Value| n["status"]["phase"] == "Running" && n["status"]["statefulSet"]["uid"] != uid(&set);
    let node = world.until(&world.nodes(), "db-0", "the node runs", whole).await;
    assert_eq!(node["status"]["plan"]["recipe"], "NodeUpdate", "{node:#}");
    world.until_db("all nodes are ready", |db| db["status"]["phase"] == "Ready").await;
    assert_eq!(world.uid_of("db-1-0").await, one, "the other node is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_deleted_comes_back_and_no_pod_is_restarted() {
    let world = World::new("lost").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let (services, pods) = (world.api("v1", "Service"), world.pod_uids().await);
    let service = world.get(&services, "db-0").await;
    world.delete(&services, "db-0").await;
    let another = |s: &Value| !s.is_null() && uid(s) != uid(&service);
    world.until(&services, "db-0", "it is created again", another).await;
    assert_eq!(world.pod_uids().await, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_is_no_rollout_and_is_reported_while_it_is_away() {
    let world = World::new("lost").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let (zero, one) = (world.uid_of("db-0-0").await, world.uid_of("db-1-0").await);
    world.steer("db-0-0", "hold-terminating").await;
    world.delete(&world.pods(), "db-0-0").await;
    let away =
        |db: &Value| condition(db, "Ready") == "False/NodesNotReady" && db["status"]["readyReplicas"] == 1;
    let db = world.until_db("a node is not ready", away).await;
    assert_eq!(condition(&db, "UpToDate"), "True/Applied", "{db:#}");
    world.steer("db-0-0", "default").await;
    world.until_serves("db-0-0", &zero).await;
    let back = world.until_db("all nodes are ready", |db| db["status"]["phase"] == "Ready").await;
    assert!(back["status"]["plan"].is_null(), "{back:#}");
    assert_eq!(world.uid_of("db-1-0").await, one);
    let node = world.get(&world.nodes(), "db-0").await;
    assert_eq!(node["status"]["podUID"], world.uid_of("db-0-0").await, "{node:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_a_child_a_set_and_a_pod_in_the_middle_does_not_break_the_wave_more_than_the_loss_itself() {
    let world = World::new("lost").await;
    world.settled_fleet(fleet(4, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-3-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-3-0", "it terminates", leaves).await;

    // The node in flight, the StatefulSet of one that waits, and the pod of another that waits.
    let node = world.get(&world.nodes(), "db-3").await;
    world.delete(&world.nodes(), "db-3").await;
    let another = |n: &Value| !n.is_null() && uid(n) != uid(&node);
    world.until(&world.nodes(), "db-3", "it is created again", another).await;
    world.delete(&world.sets(), "db-2").await;
    let one = world.until_serves("db-2-0", &before[2]).await;
    assert_eq!(one["spec"]["containers"][0]["image"], "db:1", "without a grant it comes back as it was");
    world.delete(&world.pods(), "db-1-0").await;
    let two = world.until_serves("db-1-0", &before[1]).await;
    assert_eq!(two["spec"]["containers"][0]["image"], "db:1", "without a grant it comes back as it was");
    assert_eq!(world.uid_of("db-0-0").await, before[0]);

    world.steer("db-3-0", "default").await;
    world.until_serves("db-3-0", &before[3]).await;
    let wave = Wave::watch(&world, 4).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 4]);
    wave.at_most(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_a_node_that_already_runs_the_target_is_lost_and_the_rollout_waits_for_it() {
    let world = World::new("lost").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let before = world.pod_uids().await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let second = uid(&world.until_serves("db-2-0", &before[2]).await);
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    world.steer("db-2-0", "unready").await;
    world.delete(&world.pods(), "db-2-0").await;
    let another = |pod: &Value| !pod.is_null() && uid(pod) != second;
    world.until(&world.pods(), "db-2-0", "it is created again", another).await;
    world.steer("db-1-0", "default").await;
    world.until_serves("db-1-0", &before[1]).await;
    world.until_quiet().await;
    assert_eq!(world.uid_of("db-0-0").await, before[0], "while one is down no serving node is taken down");
    let db = world.db().await;
    assert_eq!(db["status"]["plan"]["state"], "Active", "{db:#}");
    world.steer("db-2-0", "default").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_its_own_rolls_by_itself_and_a_grant_set_by_hand_gates_it() {
    let world = World::new("solo").await;
    let nodes = world.nodes();
    let spec =
        |image: &str| json!({"podTemplate": {"spec": {"containers": [{"name": "db", "image": image}]}}});
    let node = json!({"metadata": {"name": "solo"}, "spec": spec("db:1")});
    world.create("windlass.dev/v1alpha1", "StatefulNode", node).await;
    let runs = |image: &'static str| {
        move |n: &Value| {
            n["status"]["currentImage"] == image
                && n["status"]["phase"] == "Running"
                && n["status"]["observedGeneration"] == n["metadata"]["generation"]
                && n["status"]["plan"]["state"] == "Complete"
        }
    };
    let first = world.until(&nodes, "solo", "it runs", runs("db:1")).await;
    assert_eq!(first["status"]["plan"]["recipe"], "NodeUpdate", "{first:#}");
    assert_eq!(condition(&first, "Ready"), "True/NodeReady");
    let old = world.uid_of("solo-0").await;
    world.patch(&nodes, "solo", json!({"spec": spec("db:2")})).await;
    let second = world.until(&nodes, "solo", "it runs the new image", runs("db:2")).await;
    let middle = world.uid_of("solo-0").await;
    assert_ne!(middle, old);
    assert_eq!(second["status"]["history"].as_array().map(Vec::len), Some(2), "{second:#}");

    let hash = second["status"]["podTemplateHash"].clone();
    let gated = json!({"spec": {"grantedHash": hash, "podTemplate": spec("db:3")["podTemplate"]}});
    world.patch(&nodes, "solo", gated).await;
    let seen = |n: &Value| n["status"]["observedGeneration"] == n["metadata"]["generation"];
    world.until(&nodes, "solo", "the change is seen", seen).await;
    world.until_quiet().await;
    assert_eq!(world.uid_of("solo-0").await, middle, "without the grant it stays");
    let set = world.get(&world.sets(), "solo").await;
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "db:2", "and so does the template");
    world.delete(&world.pods(), "solo-0").await;
    let again = world.until_serves("solo-0", &middle).await;
    assert_eq!(again["spec"]["containers"][0]["image"], "db:2", "{again:#}");
    world.patch(&nodes, "solo", json!({"spec": {"grantedHash": null}})).await;
    world.until(&nodes, "solo", "clearing the field frees it", runs("db:3")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_suspended_has_no_pod_and_comes_back() {
    let world = World::new("solo").await;
    let nodes = world.nodes();
    let spec = json!({"podTemplate": {"spec": {"containers": [{"name": "db", "image": "db:1"}]}}});
    let node = json!({"metadata": {"name": "solo"}, "spec": spec});
    world.create("windlass.dev/v1alpha1", "StatefulNode", node).await;
    let pod = uid(&world.until_serves("solo-0", "").await);
    world.until_quiet().await;
    world.patch(&nodes, "solo", json!({"spec": {"suspend": true}})).await;
    world.until(&world.pods(), "solo-0", "its pod goes", Value::is_null).await;
    let suspended =
        |n: &Value| n["status"]["phase"] == "Suspended" && condition(n, "Ready") == "False/Suspended";
    world.until(&nodes, "solo", "it says so", suspended).await;
    world.patch(&nodes, "solo", json!({"spec": {"suspend": false}})).await;
    world.until_serves("solo-0", &pod).await;
    world.until(&nodes, "solo", "it runs", |n| n["status"]["phase"] == "Running").await;
}
