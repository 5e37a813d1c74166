//! Machines for one test, each in a zone of its own.

use k8s_openapi::api::core::v1::Node;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use windlass_harness::kit::World;

/// Machines that only the pods of one test use: the others run at the same time.
pub struct Machines {
    api: Api<Node>,
    pub names: Vec<String>,
}

impl Machines {
    /// Adds one for each of these zones.
    pub async fn add(world: &World, zones: &[&str]) -> Self {
        let api: Api<Node> = Api::all(world.cp.client().await);
        let name = |zone: &&str| format!("played-{}-{zone}", world.ns);
        let names: Vec<String> = zones.iter().map(name).collect();
        for (name, zone) in names.iter().zip(zones) {
            let room =
                json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "1000"});
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "set by the test",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let machine = json!({
                "metadata": {"name": name, "labels": {"windlass.test/of": &*world.ns, "topology.kubernetes.io/zone": zone}},
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
    pub fn placement(world: &World) -> Value {
        json!({"nodeSelector": {"windlass.test/of": &*world.ns},
            "tolerations": [{"key": "windlass.test/of", "operator": "Exists", "effect": "NoSchedule"}]})
    }

    pub async fn cordon(&self, index: usize, unschedulable: bool) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        self.api.patch(&self.names[index], &PatchParams::default(), &patch).await.expect("it is cordoned");
    }

    /// Grants the operator's account of the world the rights in deploy/rbac/drain.yaml.
    pub async fn grant(world: &World) {
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

    pub async fn remove(self) {
        for name in &self.names {
            self.api.delete(name, &DeleteParams::default()).await.expect("it is deleted");
        }
    }
}
