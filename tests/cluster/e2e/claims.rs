//! Volume claims outlive everything, unless they are to be deleted with their node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::tools::is_up;
use windlass_harness::kit::{World, fleet};

fn with_claims(replicas: i64, retention: &str) -> Value {
    let mut fleet = fleet(replicas, "db:1");
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!(retention);
    fleet["spec"]["template"]["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    fleet
}

async fn claims(world: &World) -> BTreeMap<String, String> {
    world.uids(&world.api("v1", "PersistentVolumeClaim")).await
}

/// Waits for a pod with another UID.
async fn until_replaced(world: &World, pod: &str, uid: &str) {
    world.until(&world.pods(), pod, "it is back", |p| is_up(p) && p["metadata"]["uid"] != uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_survive_rollouts_losses_scaling_and_fleet_deletion() {
    let world = World::new("claims").await;
    world.fleet(with_claims(2, "Retain")).await;
    world.until_applied().await;
    let first = claims(&world).await;
    assert_eq!(first.keys().collect::<Vec<_>>(), ["data-db-0-0", "data-db-1-0"]);
    let still = async |what: &str| assert_eq!(claims(&world).await, first, "after {what}");

    world.set_image("db:2").await;
    world.until_applied().await;
    still("a rollout").await;

    for (what, api, name, pod) in [
        ("a pod was deleted", world.pods(), "db-1-0", "db-1-0"),
        ("a StatefulSet was deleted", world.sets(), "db-0", "db-0-0"),
        ("a node was deleted", world.nodes(), "db-1", "db-1-0"),
    ] {
        let uid = world.uids(&world.pods()).await[pod].clone();
        world.delete(&api, name).await;
        until_replaced(&world, pod, &uid).await;
        still(what).await;
    }
    world.until_applied().await;

    world.patch_fleet(json!({"spec": {"replicas": 0}})).await;
    world.until(&world.pods(), "db-0-0", "it is gone", Value::is_null).await;
    world.until(&world.pods(), "db-1-0", "it is gone", Value::is_null).await;
    still("scaling to nothing").await;
    world.patch_fleet(json!({"spec": {"replicas": 2}})).await;
    world.until_pod_runs("db-1-0", "db:2").await;
    world.until_pod_runs("db-0-0", "db:2").await;
    still("scaling up again").await;

    world.delete(&world.fleets(), "db").await;
    world.until(&world.pods(), "db-0-0", "it is gone", Value::is_null).await;
    world.until(&world.pods(), "db-1-0", "it is gone", Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    still("deleting the fleet").await;
    for claim in world.list(&world.api("v1", "PersistentVolumeClaim")).await {
        assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim:#}");
        assert!(claim["metadata"]["ownerReferences"].is_null(), "{claim:#}");
    }
}
