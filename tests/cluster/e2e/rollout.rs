//! A fleet is created, and its image changes.

use serde_json::Value;

use windlass_harness::kit::{Wave, World, condition, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn new_fleet_becomes_ready_and_new_image_reaches_every_node() {
    let world = World::new("roll").await;
    world.fleet(fleet(3, "db:1")).await;
    let first = world.until_applied().await;
    assert_eq!(first["status"]["phase"], "Ready", "{first:#}");
    assert!(first["status"]["plan"].is_null(), "the first creation has no plan: {first:#}");
    assert!(first["status"]["rollout"].is_null(), "nor is it a rollout: {first:#}");
    assert_eq!(condition(&first, "RolloutInProgress"), "False/RolloutComplete", "{first:#}");
    let before = first["status"]["lastCompletedRolloutHash"].clone();
    assert_eq!(before, first["status"]["requestedRolloutHash"]);

    let wave = Wave::watch(&world, 3).await;
    world.set_image("db:2").await;
    let second = world.until_applied().await;
    let seen = wave.at_most(1).await;
    assert_eq!(world.images().await, ["db:2", "db:2", "db:2"]);
    for pod in ["db-0-0", "db-1-0", "db-2-0"] {
        assert_eq!(seen.replaced(pod), 1, "{pod} is replaced exactly once: {seen:#?}");
    }
    let status = &second["status"];
    let entry = &status["history"][0];
    assert_eq!(status["history"].as_array().map(Vec::len), Some(1), "{second:#}");
    assert_eq!(entry["outcome"], "Complete", "{second:#}");
    assert_eq!(entry["fromHash"], before);
    assert_eq!(entry["targetHash"], status["requestedRolloutHash"]);
    assert_eq!(status["plan"]["state"], "Complete", "a finished plan stays: {second:#}");
    assert_eq!(status["plan"]["recipe"], "InPlace");
    let types: Vec<&Value> =
        status["plan"]["tasks"].as_array().unwrap().iter().map(|task| &task["type"]).collect();
    assert_eq!(types, ["update-node-specs", "await-spec-update", "mark-ready"]);
    assert!(status["rollout"].is_null(), "{second:#}");
    assert_eq!(condition(&second, "RolloutInProgress"), "False/RolloutComplete", "{second:#}");
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["status"]["plan"]["recipe"], "NodeUpdate", "{node:#}");
        assert_eq!(node["status"]["currentImage"], "db:2", "{node:#}");
        assert_eq!(node["status"]["podTemplateHash"], node["spec"]["grantedHash"], "{node:#}");
    }
    world.until_event("db", "RolloutComplete").await;
    assert_eq!(world.notes("RolloutStarted").await.len(), 1);
}
