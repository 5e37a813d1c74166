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
