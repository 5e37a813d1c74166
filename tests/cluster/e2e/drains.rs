//! Drains: a machine is cordoned, and its pods move to another one, as the wave allows.

use k8s_openapi::api::core::v1::Node;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, is_applied, with};

/// Two machines that only the pods of one test use: the others run at the same time.
struct Machines {
    api: Api<Node>,
    names: [String; 2],
}

impl Machines {
    async fn add(world: &World) -> Self {
        let api: Api<Node> = Api::all(world.cp.client().await);
        let names = ["a", "b"].map(|letter| format!("played-{}-{letter}", world.ns));
        for name in &names {
            let room =
                json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "1000"});
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let machine = json!({
                "metadata": {"name": name, "labels": {"windlass.test/of": &*world.ns}},
                "spec": {"taints": [{"key": "windlass.test/of", "value": &*world.ns, "effect": "NoSchedule"}]},
                "status": {"capacity": room, "allocatable": room, "conditions": [ready],
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
            });
            let machine: Node = serde_json::from_value(machine).unwrap();
            api.create(&PostParams::default(), &machine).await.expect("a machine");
        }
        Self { api, names }
    }

    /// What makes pods run on these machines only.
    fn placement(world: &World) -> Value {
        json!({"nodeSelector": {"windlass.test/of": &*world.ns},
            "tolerations": [{"key": "windlass.test/of", "operator": "Exists", "effect": "NoSchedule"}]})
    }

    async fn cordon(&self, index: usize, unschedulable: bool) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        self.api.patch(&self.names[index], &PatchParams::default(), &patch).await.expect("it is cordoned");
    }

    /// Grants the operator's account of the world the rights in deploy/rbac/drain.yaml.
    async fn grant(world: &World) {
        let file = windlass_harness::root().join("deploy/rbac/drain.yaml");
        let rights = std::fs::read_to_string(file).expect("the file");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rights).expect("YAML");
        for mut object in objects {
            let name = json!(format!("drain-{}", &*world.ns));
            object["metadata"]["name"] = name.clone();
            if object["kind"] == "ClusterRoleBinding" {
                object["roleRef"]["name"] = name;
                object["subjects"][0]["namespace"] = json!(&*world.ns);
            }
            let (kind, client) =
                (object["kind"].as_str().unwrap_or_default().to_owned(), world.cp.client().await);
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", &kind));
            let object: DynamicObject = serde_json::from_value(object).expect("an object");
            let api: Api<DynamicObject> = Api::all_with(client, &resource);
            api.create(&PostParams::default(), &object).await.expect("it is granted");
        }
    }

    async fn remove(self) {
        for name in &self.names {
            self.api.delete(name, &DeleteParams::default()).await.expect("it is deleted");
        }
    }
}

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
    let machines = Machines::add(&world).await;
    Machines::grant(&world).await;
    world.start_operator(&["--drain"]).await;
    machines.cordon(1, true).await;
    let placed =
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": Machines::placement(&world)}}}}});
    world.settled_fleet(with(fleet(replicas, "db:1"), &placed)).await;
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
async fn operator_without_drain_leaves_cordoned_machines_alone() {
    let mut world = World::without_operator("cordon").await;
    let machines = Machines::add(&world).await;
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
