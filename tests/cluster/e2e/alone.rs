//! A node without a fleet.

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
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
