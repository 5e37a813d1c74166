//! A strategy that an earlier definition let through.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::controlplane::{ControlPlane, Options};
use windlass_harness::kit::{PATIENCE, World, condition, fleet};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn an_empty_strategy_that_was_stored_before_is_read_as_in_place() {
    // A separate control plane: changing a definition ends every watch of its kind.
    let cp: &'static ControlPlane =
        Box::leak(Box::new(ControlPlane::start(Options::default()).await.expect("a control plane")));
    let mut world = World::on(cp, "empty").await;
    let definition = "nodedeployments.windlass.dev";
    let words = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/updateStrategy/properties/type/enum";
    let patch = async |change: Value| {
        let change = json!([change]).to_string();
        let said = cp.kubectl(&["patch", "crd", definition, "--type=json", "-p", &change]).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    // As an older version's definition would have allowed it.
    patch(json!({"op": "add", "path": format!("{words}/-"), "value": ""})).await;
    let mut stored = fleet(2, "db:1");
    stored["spec"]["updateStrategy"]["type"] = json!("");
    let until = tokio::time::Instant::now() + PATIENCE;
    while let Err(refused) = world.try_create("windlass.dev/v1alpha1", "NodeDeployment", stored.clone()).await
    {
        assert!(tokio::time::Instant::now() < until, "{refused}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    patch(json!({"op": "remove", "path": format!("{words}/3")})).await;
    world.start_operator(&[]).await;
    let done = world.until_applied().await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    let sentence = windlass_harness::kit::tools::message(&done, "UpToDate");
    assert!(sentence.contains("InPlace") && sentence.contains("empty"), "{sentence}");
    assert_eq!(world.images().await, ["db:1"; 2]);
}
