//! Drains: a machine is cordoned, and its pods move to another one, as the wave allows.

use serde_json::{Value, json};

use super::machines::Machines;
use windlass_harness::kit::{Wave, World, condition, fleet, is_applied, with};

async fn are_all_on(world: &World, machine: &str, count: usize) -> bool {
    let pods = world.list(&world.pods()).await;
    pods.len() == count && pods.iter().all(|pod| pod["spec"]["nodeName"] == machine)
}

async fn until_all_on(world: &World, machine: &str, count: usize) {
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    while !are_all_on(world, machine, count).await {
        assert!(
            tokio::time::Instant::now() < until,
            "not all on {machine}: {:#?}",
            world.list(&world.pods()).await
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// A fleet whose pods are all on the first of two machines, and an operator that carries out drains. The other machine is
/// still cordoned.
async fn on_first_machine(prefix: &str, replicas: i64) -> (World, Machines) {
    let mut world = World::without_operator(prefix).await;
    let machines = Machines::add(&world, &["a", "b"]).await;
    Machines::grant(&world).await;
    world.start_operator(&["--drain"]).await;
    machines.cordon(1, true).await;
    // The disruption controller has to see a pod terminate. Otherwise it takes the next pod of the same name for the
    // evicted one, and allows no eviction for two minutes.
    for ordinal in 0..replicas {
        world.steer(&format!("db-{ordinal}-0"), "whole-grace").await;
    }
    let placed =
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": Machines::placement(&world)}}}}});
    let grace = json!({"spec": {"template": {"spec": {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}}}}});
    world.settled_fleet(with(with(fleet(replicas, "db:1"), &placed), &grace)).await;
    until_all_on(&world, &machines.names[0], usize::try_from(replicas).unwrap()).await;
    (world, machines)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_leave_a_cordoned_machine_one_at_a_time() {
    let (world, machines) = on_first_machine("drain", 3).await;
    let db = world.db().await;
    let wave = Wave::watch(&world, 3).await;
    // The list of the loop in docs/how-to/drain-machines.md.
    let on_first = format!("spec.nodeName={}", machines.names[0]);
    let listed =
        ["get", "pods", "-A", "-l", "windlass.dev/deployment", "--field-selector", &on_first, "-o", "name"];
    assert_eq!(world.cp.kubectl(&listed).await.ok().lines().count(), 3);
    machines.cordon(1, false).await;
    machines.cordon(0, true).await;
    until_all_on(&world, &machines.names[1], 3).await;
    assert_eq!(world.cp.kubectl(&listed).await.ok(), "");
    let after = world
        .until_db("it is at rest", |db| is_applied(db) && condition(db, "Reconciling") == "False/Settled")
        .await;
    let seen = wave.at_most(1).await;
    assert_eq!(seen.went, ["db-2-0", "db-1-0", "db-0-0"], "{:#?}", seen.log);
    assert_eq!(after["status"]["lastCompletedRolloutHash"], db["status"]["lastCompletedRolloutHash"]);
    for node in ["db-0", "db-1", "db-2"] {
        let moves = |node: &Value| {
            let history = node["status"]["history"].as_array().cloned().unwrap_or_default();
            history
                .iter()
                .filter(|entry| entry["recipe"] == "MoveNode" && entry["outcome"] == "Complete")
                .count()
        };
        world.until(&world.nodes(), node, "it has moved once", |node| moves(node) == 1).await;
    }
    // The request ends with the drain.
    machines.cordon(0, false).await;
    for node in ["db-0", "db-1", "db-2"] {
        world.until(&world.nodes(), node, "the request ends", |node| node["spec"]["move"].is_null()).await;
    }
    machines.remove().await;
}

/// `kubectl drain` cordons and evicts at once, while Windlass moves: both ask the same budget.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_drain_during_moves_takes_one_node_at_a_time() {
    let (world, machines) = on_first_machine("evict", 4).await;
    let budgets = world.api("policy/v1", "PodDisruptionBudget");
    world
        .until(&budgets, "db", "it allows an eviction", |pdb| pdb["status"]["disruptionsAllowed"] == 1)
        .await;
    machines.cordon(1, false).await;
    let wave = Wave::watch(&world, 4).await;
    let drained =
        world.cp.kubectl(&["drain", &machines.names[0], "--ignore-daemonsets", "--timeout=110s"]).await;
    drained.ok();
    until_all_on(&world, &machines.names[1], 4).await;
    world.until_applied().await;
    // kubectl evicts by name: it may evict a pod that has just moved once more.
    wave.at_most(1).await;
    machines.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_stateful_set_leave_a_cordoned_machine() {
    let mut world = World::without_operator("drain-ssr").await;
    let machines = Machines::add(&world, &["a", "b"]).await;
    Machines::grant(&world).await;
    world.start_operator(&["--drain"]).await;
    machines.cordon(1, true).await;
    let pods = ["ledger-0", "ledger-1", "ledger-2"];
    for pod in pods {
        world.steer(pod, "whole-grace").await;
    }
    let pod = json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "db", "image": "db:1"}]});
    let labels = json!({"app": "ledger"});
    let set = json!({"metadata": {"name": "ledger"}, "spec": {"replicas": 3, "serviceName": "ledger",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": with(pod, &Machines::placement(&world))}}});
    world.create("apps/v1", "StatefulSet", set).await;
    let rollout = json!({"metadata": {"name": "ledger"}, "spec": {"statefulSets": {"names": ["ledger"]}}});
    world.create("windlass.dev/v1alpha1", "StatefulSetRollout", rollout).await;
    let rollouts = world.api("windlass.dev/v1alpha1", "StatefulSetRollout");
    let is_at_rest = |rollout: &Value| {
        is_applied(rollout)
            && rollout["status"]["readyReplicas"] == 3
            && rollout["status"]["nodes"].is_null()
            && condition(rollout, "Reconciling") == "False/Settled"
    };
    world.until(&rollouts, "ledger", "it is at rest", is_at_rest).await;
    until_all_on(&world, &machines.names[0], 3).await;
    let wave = Wave::of_pods(&world, &pods).await;
    machines.cordon(1, false).await;
    machines.cordon(0, true).await;
    until_all_on(&world, &machines.names[1], 3).await;
    world.until(&rollouts, "ledger", "it is at rest again", is_at_rest).await;
    let seen = wave.at_most(1).await;
    assert_eq!(seen.went, ["ledger-2", "ledger-1", "ledger-0"], "{:#?}", seen.log);
    machines.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_without_drain_leaves_cordoned_machines_alone() {
    let mut world = World::without_operator("cordon").await;
    let machines = Machines::add(&world, &["a", "b"]).await;
    world.start_operator(&[]).await;
    let placed =
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": Machines::placement(&world)}}}}});
    world.settled_fleet(with(fleet(2, "db:1"), &placed)).await;
    let before = world.uids(&world.pods()).await;
    machines.cordon(0, true).await;
    world.until_quiet().await;
    assert_eq!(world.uids(&world.pods()).await, before);
    machines.remove().await;
}
