//! Probes. The tests answer them: every address of loopback is this machine's, the pods' too.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use axum::{Router, http::StatusCode, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::process_kubelet::kit::{World, condition, container, shell, with};

const PORT: u16 = 7070;

/// Answers at a pod's address with a status that the test may change.
async fn answers(world: &World, pod: &str, status: u16) -> Arc<AtomicU16> {
    let said = Arc::new(AtomicU16::new(status));
    let listener = TcpListener::bind((world.address(pod).as_str(), PORT)).await.unwrap();
    let says = Arc::clone(&said);
    let health = get(move || async move { StatusCode::from_u16(says.load(Ordering::Relaxed)).unwrap() });
    let router = Router::new().route("/health", health);
    tokio::spawn(async move { axum::serve(listener, router).await });
    said
}

fn probed(kind: &str, probe: Value) -> Value {
    with(
        shell("main", "exec sleep 600"),
        json!({kind: probe, "ports": [{"name": "web", "containerPort": PORT}]}),
    )
}

fn http(more: Value) -> Value {
    with(json!({"httpGet": {"path": "/health", "port": "web"}, "periodSeconds": 1}), more)
}

#[tokio::test]
#[ignore = "nightly"]
async fn readiness_follows_probe_results_without_restarts() {
    let world = World::new("readiness").await;
    let said = answers(&world, "p", 503).await;
    let spec = json!({"containers": [probed("readinessProbe", http(json!({"failureThreshold": 2})))]});
    world.pod("p", spec).await;
    world
        .until_event("p", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
        .await;
    let pod = world.until("p", "it runs", |p| container(p, "main")["started"] == true).await;
    assert_eq!(container(&pod, "main")["ready"], false);
    assert_eq!(condition(&pod, "ContainersReady"), "False");
    said.store(200, Ordering::Relaxed);
    world.until_ready("p").await;
    said.store(500, Ordering::Relaxed);
    let pod = world.until("p", "it is unready", |p| condition(p, "Ready") == "False").await;
    assert_eq!(container(&pod, "main")["restartCount"], 0);
}

#[tokio::test]
#[ignore = "nightly"]
async fn liveness_restarts_an_unresponsive_container() {
    let world = World::new("liveness").await;
    let said = answers(&world, "p", 200).await;
    let probe = http(json!({"failureThreshold": 2, "terminationGracePeriodSeconds": 1}));
    world.pod("p", json!({"containers": [probed("livenessProbe", probe)]})).await;
    world.until_ready("p").await;
    said.store(500, Ordering::Relaxed);
    let pod = world.until("p", "it restarts", |p| container(p, "main")["restartCount"] == 1).await;
    assert_eq!(container(&pod, "main")["lastState"]["terminated"]["signal"], 15);
    said.store(200, Ordering::Relaxed);
    world.until_event("p", "Killing", "Container main failed liveness probe, will be restarted").await;
    world.until_ready("p").await;
}

#[tokio::test]
#[ignore = "nightly"]
async fn tcp_and_exec_probes_observe_the_container() {
    let world = World::new("tcp-exec").await;
    let tcp = json!({"tcpSocket": {"port": PORT}, "periodSeconds": 1});
    let exec = json!({"exec": {"command": ["test", "-f", "up"]}, "periodSeconds": 1});
    world.pod("tcp", json!({"containers": [probed("readinessProbe", tcp)]})).await;
    let main = with(shell("main", "sleep 2; touch up; exec sleep 600"), json!({"readinessProbe": exec}));
    world.pod("exec", json!({"containers": [main]})).await;
    world.until_event("tcp", "Unhealthy", "Readiness probe failed: dial tcp").await;
    let _listens = answers(&world, "tcp", 200).await;
    world.until_ready("tcp").await;
    world.until_event("exec", "Unhealthy", "Readiness probe failed").await;
    world.until_ready("exec").await;
}
