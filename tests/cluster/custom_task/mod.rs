//! A custom task type, end to end: the operator of `examples/drain_broker` on a real control plane, with brokers that
//! answer over HTTP.

mod brokers;
#[allow(dead_code, reason = "its own main is not run")]
#[path = "../../../examples/drain_broker/main.rs"]
mod drain_broker;
mod fleets;

use std::time::Duration;

use brokers::{Brokers, Manner};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::clock::monotonic;
use windlass_harness::kit::{PATIENCE, World};

/// A namespace with the example's operator and brokers for its pods.
struct Scene {
    world: World,
    brokers: Brokers,
    operator: JoinHandle<()>,
}

impl Scene {
    async fn new(prefix: &str) -> Self {
        let world = World::without_operator(prefix).await;
        let brokers = Brokers::start(world.pods()).await;
        let operator = operator(&world, brokers.port).await;
        Self { world, brokers, operator }
    }

    /// The operator ends at once, and another one takes over.
    async fn another_operator(&mut self) {
        self.operator.abort();
        let _ = (&mut self.operator).await;
        self.operator = operator(&self.world, self.brokers.port).await;
    }

    async fn fleet(&self, replicas: i64) {
        let fleet = json!({
            "metadata": {"name": "db"},
            "spec": {
                "replicas": replicas,
                "template": {"spec": {"podTemplate": {
                    "metadata": {"annotations": {"windlass.test/pod-ip": "loopback"}},
                    "spec": {"containers": [{"name": "broker", "image": "broker:1"}]},
                }}},
                "updateStrategy": {"type": "InPlace"},
            },
        });
        self.world.fleet(fleet).await;
        self.world.until_applied().await;
    }

    /// Waits until a node's plan is at drain-broker with a message like this; returns node and task.
    async fn until_draining(&self, words: &str) -> (String, Value) {
        let until = monotonic() + PATIENCE;
        loop {
            let nodes = self.world.list(&self.world.nodes()).await;
            let tasks = nodes.iter().map(|n| (text(&n["metadata"]["name"]), current_task(n)));
            let found = tasks
                .into_iter()
                .find(|(_, task)| task["type"] == "drain-broker" && text(&task["message"]).contains(words));
            if let Some(found) = found {
                return found;
            }
            assert!(monotonic() < until, "no node's plan is at drain-broker and says {words:?}: {nodes:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

async fn operator(world: &World, port: u16) -> JoinHandle<()> {
    let token = world.cp.service_account_token(&world.ns, "windlass").await.expect("a token");
    let client = world.cp.client_for_token(&token).await;
    let drain = drain_broker::DrainBroker { container: "broker".to_owned(), port };
    let operator = drain_broker::operator(client, &drain).expect("recipes");
    let operator = operator.namespaces([world.ns.to_string()]);
    tokio::spawn(async { operator.run(std::future::pending()).await.expect("it runs") })
}

fn current_task(node: &Value) -> Value {
    let tasks = node["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    tasks.into_iter().find(|t| t["state"] == "Running").unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broker_is_drained_once_before_pod_deletion() {
    let mut scene = Scene::new("drain").await;
    scene.fleet(3).await;
    assert_eq!(scene.brokers.all(), [], "the creation of a node drains nothing");
    let old = scene.world.pod_uids().await;
    let mark = scene.world.cp.audit_mark().await;
    scene.brokers.next(&[Manner::Unavailable, Manner::SlowUntilReleased]);
    scene.world.set_image("broker:2").await;

    scene.until_draining("it is draining").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.world.pod_uids().await, old, "a broker that is draining keeps its pod");
    scene.another_operator().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.world.pod_uids().await, old, "and keeps it under another operator");
    scene.brokers.release();

    scene.world.until_applied().await;
    let new = scene.world.pod_uids().await;
    assert!(new.iter().all(|uid| !old.contains(uid)), "every pod was replaced");
    let asked = scene.brokers.all();
    let uids: Vec<&str> = asked.iter().map(|b| b.uid.as_str()).collect();
    assert_eq!(sorted(&uids), sorted(&old), "the brokers of the old pods were asked, and no others");
    let first = &asked[0];
    assert_eq!((first.refused, first.drains), (1, 1), "what answered 503 was asked again: {first:?}");
    for broker in &asked {
        assert_eq!(broker.drains, 1, "drained once: {broker:?}");
        let deletes = scene.world.cp.audit_since(mark).await;
        let deletes = deletes.namespace(&scene.world.ns).resource("pods").verb("delete").name(&broker.pod);
        // The simulated kubelet deletes terminating pods, too.
        let account = format!("system:serviceaccount:{}:windlass", scene.world.ns);
        let deletes = deletes.user(&account);
        assert_eq!(deletes.count(), 1, "{} is deleted once", broker.pod);
        let at = chrono::DateTime::parse_from_rfc3339(&deletes.entries()[0].request_received_timestamp);
        assert!(at.unwrap() > broker.drained_at.unwrap(), "drained before it is deleted: {broker:?}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn sorted<T: AsRef<str>>(list: &[T]) -> Vec<&str> {
    let mut list: Vec<&str> = list.iter().map(AsRef::as_ref).collect();
    list.sort_unstable();
    list
}
