//! Fleets that the operator made in a simulated cluster with its own time: equal to the second in each run.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;
use windlass::operator::Operator;
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster, ClusterClock, Image, Options};

pub const NAMESPACE: &str = "shop";

/// The cluster and its time.
pub struct Scene {
    pub image: Image,
    pub now: DateTime<Utc>,
}

/// Plays the scene. Blocks for about a second, which is minutes of the cluster's time.
pub fn played() -> Scene {
    let play = || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play())
    };
    std::thread::spawn(play).join().unwrap()
}

async fn play() -> Scene {
    let clock = ClusterClock::starting_at("2026-01-01T04:00:00Z".parse().unwrap());
    let cluster = Cluster::start(Options { clock, ..Options::seeded(1) });
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
    let room = json!({"cpu": "1000", "memory": "100Ti", "pods": "10000"});
    cluster
        .install(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played-0"},
            "status": {"capacity": room, "allocatable": room}}))
        .unwrap();
    cluster
        .install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .unwrap();
    let (start, stop) = (Duration::from_secs(20), Duration::from_secs(5));
    tokio::spawn(Kubelet::new(cluster.client("kubelet", NAMESPACE), cluster.clock()).pace(start, stop).run());
    let operator = Operator::new(cluster.client("operator", NAMESPACE)).clock(cluster.clock());
    tokio::spawn(async move { operator.run(std::future::pending()).await.map_err(|e| e.to_string()) });

    let fleets = fleets(&cluster.client("person", NAMESPACE));
    let in_place = json!({"type": "InPlace", "inPlace": {"maxUnavailable": 2}});
    let manual = json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}});
    for (name, replicas, strategy) in [
        ("cache", 3, json!({"type": "InPlace"})),
        ("db", 5, in_place.clone()),
        ("queue", 6, in_place),
        ("web", 2, manual),
    ] {
        make(&fleets, name, replicas, strategy).await;
    }
    sleep(Duration::from_mins(5)).await;
    // One waits for a person, one is blocked, and one is half done.
    set_image(&fleets, "web", "web:1.1").await;
    sleep(Duration::from_mins(2)).await;
    set_image(&fleets, "db", "db:1.1-nope").await;
    sleep(Duration::from_secs(80)).await;
    set_image(&fleets, "queue", "queue:2.0").await;
    sleep(Duration::from_secs(45)).await;
    Scene { now: cluster.clock().now(), image: cluster.image() }
}

fn fleets(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment"));
    Api::namespaced_with(client.clone(), NAMESPACE, &kind)
}

/// The manifest of a fleet.
pub fn fleet(name: &str, replicas: i32, strategy: &Value) -> Value {
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "minReadySeconds": 5, "updateStrategy": strategy,
            "template": {"spec": {"image": format!("registry.example/{name}:1.0"),
                "podTemplate": {"spec": {"containers": [{"name": name, "ports": [{"containerPort": 5432}]}]}}}}}})
}

async fn make(fleets: &Api<DynamicObject>, name: &str, replicas: i32, strategy: Value) {
    let fleet = serde_json::from_value(fleet(name, replicas, &strategy)).unwrap();
    fleets.create(&PostParams::default(), &fleet).await.unwrap();
}

async fn set_image(fleets: &Api<DynamicObject>, name: &str, image: &str) {
    let patch = json!({"spec": {"template": {"spec": {"image": format!("registry.example/{image}")}}}});
    fleets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}
