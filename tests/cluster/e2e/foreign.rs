//! A name is taken by an object of somebody else: it is reported and not touched, and the rest continues.

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition, fleet};

fn foreign_set() -> Value {
    let labels = json!({"app": "other"});
    json!({
        "metadata": {"name": "db-1"},
        "spec": {
            "serviceName": "other", "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "other", "image": "other:1"}]},
            },
        },
    })
}

fn message(object: &Value, type_: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == type_);
    found.map_or_else(String::new, |c| c["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_stateful_set_is_named_and_left_alone_and_the_other_nodes_go_on() {
    let world = World::without_operator("foreign").await;
    let mut world = world;
    world.create("apps/v1", "StatefulSet", foreign_set()).await;
    let pod = world.until_serves("db-1-0", "").await;
    let spec = world.get(&world.sets(), "db-1").await["spec"].clone();
    world.start_operator(&[]).await;
    world.fleet(fleet(3, "db:1")).await;
    let refused = |n: &Value| condition(n, "Stalled") == "True/InvalidSpec";
    let node = world.until(&world.nodes(), "db-1", "its StatefulSet's name is taken", refused).await;
    let sentence = message(&node, "Stalled");
    assert!(sentence.contains("StatefulSet db-1"), "{sentence}");
    world.until_serves("db-0-0", "").await;
    world.until_serves("db-2-0", "").await;
    let quiet = world.until_quiet().await;
    assert_eq!(condition(&quiet, "Ready"), "False/NodesInitializing", "{quiet:#}");
    let foreign = world.get(&world.sets(), "db-1").await;
    assert_eq!(foreign["spec"], spec, "it is not touched");
    assert!(foreign["metadata"]["labels"].is_null(), "nor adopted: {foreign:#}");
    assert_eq!(world.uid_of("db-1-0").await, pod["metadata"]["uid"]);

    world.delete(&world.sets(), "db-1").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:1"; 3], "once it is gone the fleet goes on by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_service_is_named_and_left_alone() {
    let world = World::new("foreign").await;
    let spec = json!({"selector": {"app": "other"}, "ports": [{"port": 80}]});
    world.create("v1", "Service", json!({"metadata": {"name": "db-0"}, "spec": spec})).await;
    let services = world.api("v1", "Service");
    let before = world.get(&services, "db-0").await;
    world.fleet(fleet(2, "db:1")).await;
    let refused = |n: &Value| condition(n, "Stalled") == "True/InvalidSpec";
    let node = world.until(&world.nodes(), "db-0", "its Service's name is taken", refused).await;
    assert!(message(&node, "Stalled").contains("Service db-0"), "{node:#}");
    world.until_serves("db-1-0", "").await;
    world.until_quiet().await;
    assert_eq!(world.get(&services, "db-0").await, before, "it is not touched");
    world.delete(&services, "db-0").await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_node_is_named_and_left_alone_and_the_other_nodes_roll() {
    let world = World::new("foreign").await;
    let spec = json!({"podTemplate": {"spec": {"containers": [{"name": "x", "image": "other:1"}]}}});
    let node = json!({"metadata": {"name": "db-1"}, "spec": spec});
    world.create("windlass.dev/v1alpha1", "StatefulNode", node).await;
    let pod = world.until_serves("db-1-0", "").await;
    world.until_quiet().await;
    let before = world.get(&world.nodes(), "db-1").await;
    world.fleet(fleet(3, "db:1")).await;
    let refused = |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec";
    let db = world.until_db("the name is taken", refused).await;
    assert!(message(&db, "UpToDate").contains("StatefulNode db-1"), "{db:#}");
    assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
    assert!(world.until_event("db", "InvalidSpec").await.contains("db-1"));
    world.until_serves("db-0-0", "").await;
    world.until_serves("db-2-0", "").await;

    world.set_image("db:2").await;
    let at = |n: &Value| n["status"]["currentImage"] == "db:2";
    world.until(&world.nodes(), "db-0", "the other nodes go on", at).await;
    world.until(&world.nodes(), "db-2", "the other nodes go on", at).await;
    let quiet = world.until_quiet().await;
    assert_ne!(condition(&quiet, "UpToDate"), "True/Applied", "{quiet:#}");
    assert_eq!(world.get(&world.nodes(), "db-1").await, before, "it is not touched");
    assert_eq!(world.uid_of("db-1-0").await, pod["metadata"]["uid"]);

    world.delete(&world.nodes(), "db-1").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_fleets_of_which_one_is_named_as_a_node_of_the_other_do_not_meet() {
    let world = World::new("foreign").await;
    let mut other = fleet(1, "other:1");
    other["metadata"]["name"] = json!("db-1");
    world.fleet(other).await;
    world.until_serves("db-1-0-0", "").await;
    // Fleet `db-1` has the node `db-1-0`; the fleet `db` has the node `db-1`, whose pod is `db-1-0`.
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    world.until(&world.fleets(), "db-1", "the other is ready too", |f| f["status"]["phase"] == "Ready").await;
    assert_eq!(world.list(&world.nodes()).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_service_of_the_fleets_own_name_is_named_and_left_alone() {
    let world = World::new("foreign").await;
    let spec = json!({"selector": {"app": "other"}, "ports": [{"port": 80}]});
    world.create("v1", "Service", json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let services = world.api("v1", "Service");
    let before = world.get(&services, "db").await;
    let mut object = fleet(2, "db:1");
    object["spec"]["service"] = json!({"ports": [{"name": "db", "port": 5432}]});
    world.fleet(object).await;
    let refused =
        |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec" && db["status"]["readyReplicas"] == 2;
    let db = world.until_db("its Service's name is taken, and its nodes run", refused).await;
    assert!(message(&db, "UpToDate").contains("Service db"), "{db:#}");
    world.until_quiet().await;
    assert_eq!(world.get(&services, "db").await, before, "it is not touched");
    world.delete(&services, "db").await;
    world.until_applied().await;
    let service = world.get(&services, "db").await;
    assert_eq!(service["spec"]["ports"][0]["port"], 5432, "{service:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_pod_of_a_nodes_name_is_named_and_left_alone_and_the_other_nodes_go_on() {
    let world = World::new("foreign").await;
    let spec = json!({"containers": [{"name": "x", "image": "other:1"}]});
    world.create("v1", "Pod", json!({"metadata": {"name": "db-1-0"}, "spec": spec})).await;
    let pod = world.until_serves("db-1-0", "").await;
    world.fleet(fleet(3, "db:1")).await;
    let refused =
        |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec" && db["status"]["readyReplicas"] == 2;
    let db = world.until_db("the name is taken, and the others serve", refused).await;
    assert!(message(&db, "UpToDate").contains("Pod db-1-0"), "{db:#}");
    let node = world.get(&world.nodes(), "db-1").await;
    assert_eq!(condition(&node, "Stalled"), "True/InvalidSpec", "{node:#}");
    assert!(world.until_event("db-1", "InvalidSpec").await.contains("Pod db-1-0"));
    world.until_quiet().await;
    assert_eq!(world.uid_of("db-1-0").await, pod["metadata"]["uid"], "it is not touched");

    world.delete(&world.pods(), "db-1-0").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:1"; 3], "once it is gone the fleet goes on by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_claim_of_a_nodes_name_is_named_and_nothing_runs_on_it() {
    let world = World::new("foreign").await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "data-db-1-0"}, "spec": spec});
    world.create("v1", "PersistentVolumeClaim", claim).await;
    let claims = world.api("v1", "PersistentVolumeClaim");
    let before = world.get(&claims, "data-db-1-0").await["metadata"].clone();
    let mut object = fleet(2, "db:1");
    object["spec"]["template"]["spec"]["volumeClaimTemplates"] =
        json!([{"metadata": {"name": "data"}, "spec": spec}]);
    world.fleet(object).await;
    let refused =
        |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec" && db["status"]["readyReplicas"] == 1;
    let db = world.until_db("the name is taken, and the other serves", refused).await;
    assert!(message(&db, "UpToDate").contains("PersistentVolumeClaim data-db-1-0"), "{db:#}");
    world.until_quiet().await;
    assert!(world.get(&world.sets(), "db-1").await.is_null(), "nothing runs on it");
    let after = world.get(&claims, "data-db-1-0").await["metadata"].clone();
    assert_eq!((&after["uid"], &after["labels"]), (&before["uid"], &before["labels"]), "it is not touched");

    // A person may give it to the node.
    world.patch(&claims, "data-db-1-0", json!({"metadata": {"labels": {"windlass.dev/node": "db-1"}}})).await;
    world.until_applied().await;
    assert_eq!(world.get(&claims, "data-db-1-0").await["metadata"]["uid"], before["uid"]);
}
