//! The manifests under examples/, applied as a reader would apply them.

use windlass_harness::kit::{World, condition};

async fn apply(world: &World, file: &str) {
    let path = format!("{}/../../examples/{file}", env!("CARGO_MANIFEST_DIR"));
    // Strict: a misspelt field in a sample is an error here, not a warning.
    world.cp.kubectl(&["-n", &world.ns, "apply", "--validate=strict", "-f", &path]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn sample_fleet_becomes_ready() {
    let world = World::new("sample-fleet").await;
    apply(&world, "fleet.yaml").await;
    let fleet = world.until_applied().await;
    assert_eq!(fleet["status"]["readyReplicas"], 5, "{fleet:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_node_becomes_ready_with_its_claim() {
    let world = World::new("sample-node").await;
    apply(&world, "node.yaml").await;
    let running = |node: &serde_json::Value| node["status"]["phase"] == "Running";
    world.until(&world.nodes(), "ledger", "it runs", running).await;
    let claims = world.list(&world.api("v1", "PersistentVolumeClaim")).await;
    assert_eq!(claims[0]["metadata"]["name"], "data-ledger-0", "{claims:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_fleet_with_sidecar_waits_for_its_sidecars() {
    let world = World::new("sample-sidecar").await;
    apply(&world, "fleet-with-claims-and-sidecar.yaml").await;
    let nodes = world.nodes();
    // There are no fake sidecars here: nothing answers at their addresses.
    let asked = |node: &serde_json::Value| condition(node, "SidecarReady") == "Unknown/Unreachable";
    for node in ["chain-0", "chain-1", "chain-2"] {
        world.until(&nodes, node, "its sidecar was asked", asked).await;
    }
    let pod = world.get(&world.pods(), "chain-0-0").await;
    assert_eq!(pod["spec"]["initContainers"][0]["name"], "windlass-sidecar", "{pod:#}");
    assert_eq!(world.list(&world.api("v1", "PersistentVolumeClaim")).await.len(), 3);
    let service = world.get(&world.api("v1", "Service"), "chain").await;
    assert_eq!(service["spec"]["ports"][0]["port"], 8545, "{service:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn sample_blue_green_fleet_becomes_ready_and_promotes() {
    let world = World::new("sample-bg").await;
    apply(&world, "blue-green.yaml").await;
    let fleets = world.fleets();
    world.until(&fleets, "index", "it serves", windlass_harness::kit::is_applied).await;
    let patch = serde_json::json!({"spec": {"template": {"spec": {"image": "registry.example/index:2.0"}}}});
    world.patch(&fleets, "index", patch).await;
    let moved = |fleet: &serde_json::Value| fleet["status"]["rollout"]["stage"] == "Retiring";
    let fleet = world.until(&fleets, "index", "traffic moved", moved).await;
    assert_eq!(condition(&fleet, "UpToDate"), "True/Applied", "{fleet:#}");
    let service = world.get(&world.api("v1", "Service"), "index").await;
    assert_eq!(service["spec"]["selector"]["windlass.dev/set"], fleet["status"]["activeSet"], "{service:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn sample_hard_fork_is_accepted_and_creates_its_nodes() {
    let world = World::new("sample-fork").await;
    apply(&world, "hard-fork.yaml").await;
    // There are no fake sidecars here.
    let asked = |node: &serde_json::Value| condition(node, "SidecarReady") == "Unknown/Unreachable";
    for node in ["relay-0", "relay-1"] {
        world.until(&world.nodes(), node, "its sidecar was asked", asked).await;
    }
}
