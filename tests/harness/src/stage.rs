//! A furnished cluster for tests.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster, Options};

use crate::panics;

/// Runs a test in a runtime with paused time. Nothing may panic, not even the operator, which goes on after it.
pub fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    panics::clear();
    let ended = runtime.block_on(test);
    assert_eq!(panics::take(), [""; 0]);
    ended
}

/// A cluster with a node, a namespace and a simulated kubelet. Call it within a runtime.
pub fn furnished(options: Options) -> Cluster {
    let cluster = Cluster::start(options);
    let room = json!({"cpu": "10000", "memory": "100Ti", "pods": "100000"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played-0"},
        "status": {"capacity": room, "allocatable": room}});
    cluster.install(node).unwrap();
    cluster.install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "test"}})).unwrap();
    tokio::spawn(Kubelet::new(cluster.client("kubelet", "default"), cluster.clock()).run());
    cluster
}

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn set(name: &str, image: &str, replicas: i32) -> StatefulSet {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]}},
        },
    }))
    .unwrap()
}

pub async fn create_set(client: &Client, name: &str, image: &str, replicas: i32) {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "test");
    sets.create(&PostParams::default(), &set(name, image, replicas)).await.unwrap();
}

/// Waits until a set has this many available pods.
pub async fn until_available(client: &Client, name: &str, count: i32) -> StatefulSet {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "test");
    for _ in 0..3000 {
        let set = sets.get(name).await.unwrap();
        let status = set.status.clone().unwrap_or_default();
        if status.available_replicas == Some(count) && status.observed_generation == set.metadata.generation {
            return set;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{name} never had {count} available pods");
}

pub async fn pod(client: &Client, name: &str) -> Option<Pod> {
    Api::<Pod>::namespaced(client.clone(), "test").get_opt(name).await.unwrap()
}

pub fn image(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap_or_default()
}

pub fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map_or("", String::as_str)
}
