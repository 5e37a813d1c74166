//! The PodDisruptionBudget of a fleet, with the disruption controller and the eviction API of a real control plane.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, condition, fleet};

async fn evict(world: &World, pod: &str) -> Result<(), (u16, String)> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.ns);
    match pods.evict(pod, &EvictParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_take_no_more_nodes_than_the_wave() {
    let world = World::new("budget").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let budgets = world.api("policy/v1", "PodDisruptionBudget");
    let allows = |count: i64| {
        move |budget: &Value| {
            let status = &budget["status"];
            (&status["expectedPods"], &status["desiredHealthy"], &status["disruptionsAllowed"])
                == (&json!(3), &json!(2), &json!(count))
        }
    };
    let budget = world.until(&budgets, "db", "one pod may be evicted", allows(1)).await;
    assert_eq!(budget["spec"]["minAvailable"], 2, "{budget:#}");

    world.steer("db-2-0", "hold-terminating").await;
    evict(&world, "db-2-0").await.expect("the budget allows it");
    let (code, message) = evict(&world, "db-1-0").await.expect_err("a second pod is not evicted");
    assert!(code == 429 && message.contains("disruption budget"), "{code} {message}");
    world.steer("db-2-0", "default").await;
    world.until(&budgets, "db", "the pod is back", allows(1)).await;

    let theirs = json!({"metadata": {"name": "theirs"}, "spec": {"maxUnavailable": 1, "selector": {}}});
    world.create("policy/v1", "PodDisruptionBudget", theirs).await;
    let overlaps = |db: &Value| condition(db, "DisruptionBudgetReady") == "False/BudgetsOverlap";
    world.until_db("the overlap is reported", overlaps).await;
    world.until(&budgets, "db", "Windlass' budget is gone", Value::is_null).await;
    let status = windlass(&world, &["status", "nd/db"]).await.out.replace('\n', " ");
    assert!(status.contains("PodDisruptionBudget theirs selects pods"), "{status}");
    // Otherwise the API server would answer with 500: more than one budget selects the pod.
    evict(&world, "db-1-0").await.expect("the other budget allows it");
    world.set_image("db:2").await;
    let applied = |db: &Value| overlaps(db) && condition(db, "UpToDate") == "True/Applied";
    world.until_db("the rollout is complete", |db| db["status"]["updatedReplicas"] == 3 && applied(db)).await;

    world.delete(&budgets, "theirs").await;
    world.until_db("the condition is gone", |db| condition(db, "DisruptionBudgetReady").is_empty()).await;
    world.until(&budgets, "db", "it is created again", allows(1)).await;
}
