//! The unmodified operator on the simulated cluster.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass::operator::Operator;
use windlass::operator::lease::Election;
use windlass_sim::{After, Cluster, Failure, FaultPlan, Options, RequestInfo};

use windlass_harness::stage::{furnished, paused};

fn install_crds(cluster: &Cluster) {
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
}

fn fleet() -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {"podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:1"}]}}}},
        },
    })
}

async fn until_completed(api: &Api<DynamicObject>, after: &Value) -> Value {
    for _ in 0..3000 {
        let found = api.get("db").await.unwrap().data;
        let hash = &found["status"]["lastCompletedRolloutHash"];
        if found["status"]["phase"] == "Ready" && hash.is_string() && hash != after {
            return hash.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the rollout never completed: {}", api.get("db").await.unwrap().data["status"]);
}

struct Stage {
    cluster: Cluster,
    client: kube::Client,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Stage {
    async fn with_fleet(seed: u64) -> Self {
        let cluster = furnished(Options::seeded(seed));
        install_crds(&cluster);
        let client = cluster.client("test", "test");
        let mut stage = Self { cluster, client, stop: None };
        stage.start();
        let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
        fleets.create(&PostParams::default(), &serde_json::from_value(fleet()).unwrap()).await.unwrap();
        until_completed(&fleets, &Value::Null).await;
        stage
    }

    fn start(&mut self) {
        let operator = Operator::new(self.cluster.client("windlass", "test")).clock(self.cluster.clock());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(operator.run(async { drop(stopped.await) }));
        self.stop = Some(stop);
    }

    async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.client.clone(), "test", &ApiResource::from_gvk(&kind))
    }

    async fn until(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let api = self.api("windlass.dev", "v1alpha1", kind);
        for _ in 0..3000 {
            let found = json!(api.get(name).await.unwrap());
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain until {what}: {:#}", json!(api.get(name).await.unwrap())["status"]);
    }
}

/// The first write to a node is carried out, and its answer is a 504.
struct OneLostAnswer(bool);

impl FaultPlan for OneLostAnswer {
    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        let is_of_node = request.verb == "patch" && request.resource.starts_with("statefulnodes");
        if self.0 || !is_of_node || !request.subresource.is_empty() {
            return After::Pass;
        }
        self.0 = true;
        After::Fail(Failure::ServerTimeout)
    }
}

#[test]
fn a_leader_that_stops_gives_its_lease_up_unless_a_write_may_land() {
    paused(async {
        for (lost, rest_seconds, expected) in [(false, 5, ""), (true, 5, "a"), (true, 90, "")] {
            let mut stage = Stage::with_fleet(9).await;
            stage.stop().await;
            let election =
                Election { namespace: "test".into(), name: "windlass".into(), identity: "a".into() };
            let operator = Operator::new(stage.cluster.client("windlass", "test"))
                .clock(stage.cluster.clock())
                .elect(election);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let running = tokio::spawn(operator.run(async { drop(stopped.await) }));
            tokio::time::sleep(Duration::from_mins(1)).await;
            if lost {
                stage.cluster.set_faults(Box::new(OneLostAnswer(false)));
            }
            let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
            let change = json!({"spec": {"template": {"metadata": {"labels": {"team": "one"}}}}});
            fleets.patch("db", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            let is_labelled = |node: &Value| node["metadata"]["labels"]["team"] == "one";
            for node in ["db-0", "db-1", "db-2"] {
                stage.until("StatefulNode", node, "it is labelled", is_labelled).await;
            }
            tokio::time::sleep(Duration::from_secs(rest_seconds)).await;
            stop.send(()).unwrap();
            running.await.unwrap().unwrap();
            let lease = stage.api("coordination.k8s.io", "v1", "Lease").get("windlass").await.unwrap();
            let holder = lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default();
            assert_eq!(holder, expected, "{lost} {rest_seconds} {}", lease.data["spec"]);
        }
    });
}
