//! What kubelets report, and what some leave out: the cause of a problem is in the status and in `explain`, and a fleet of
//! Ready pods completes.

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, fleet, with};

/// Waits until the node `db-0` has a problem with all of these words, and `explain` says them as well.
async fn is_told(world: &World, words: &[&str]) -> Value {
    let says = |node: &Value| {
        let problem = node["status"]["problem"].to_string();
        words.iter().all(|word| problem.contains(word))
    };
    let node = world.until(&world.nodes(), "db-0", &format!("its problem has {words:?}"), says).await;
    let explained = windlass(world, &["explain", "nd/db"]).await;
    assert!(words.iter().all(|word| explained.out.contains(word)), "{words:?}: {}", explained.out);
    node["status"]["problem"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_memory_container_is_reported_as_oomkilled() {
    let world = World::new("oom").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    world.set_image("db:2-oom").await;
    is_told(&world, &["CrashLoopBackOff", "last termination: OOMKilled, exit code 137"]).await;
    let named = |db: &Value| {
        let first = &db["status"]["rollout"]["unconverged"][0];
        first["reason"] == "CrashLoopBackOff" && first.to_string().contains("OOMKilled, exit code 137")
    };
    world.until_db("it is named", named).await;
    world.set_image("db:3").await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_readiness_gate_is_named_and_opening_completes_fleet() {
    let world = World::new("gated").await;
    let gates = json!([{"conditionType": "lb.test/healthy"}]);
    let change =
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": {"readinessGates": gates}}}}}});
    world.fleet(with(fleet(1, "db:1"), &change)).await;
    is_told(&world, &["readiness gate lb.test/healthy of pod db-0-0 is not True"]).await;
    let pod = world.get(&world.pods(), "db-0-0").await;
    let with_gate = |status: &str| {
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.push(
            json!({"type": "lb.test/healthy", "status": status, "reason": "Checking", "message": "0 of 2"}),
        );
        json!({"status": {"conditions": conditions}})
    };
    world.patch_status(&world.pods(), "db-0-0", with_gate("False")).await;
    is_told(&world, &["readiness gate lb.test/healthy", "Checking: 0 of 2"]).await;
    world.patch_status(&world.pods(), "db-0-0", with_gate("True")).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_completes_with_incomplete_kubelet_status() {
    for kubelet in ["kwok", "virtual"] {
        let world = World::new(kubelet).await;
        world.steer("kubelet", kubelet).await;
        world.settled_fleet(fleet(2, "db:1")).await;
        let pod = world.get(&world.pods(), "db-0-0").await;
        let id = pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default();
        assert_eq!(id, "", "{pod:#}");
        world.set_image("db:2").await;
        world.until_applied().await;
        assert_eq!(world.images().await, ["db:2"; 2]);
        let node = world.get(&world.nodes(), "db-0").await;
        assert_eq!(node["status"]["currentImage"], "db:2", "{node:#}");
    }
}
