//! Hooks of workers' rollouts: the shipped operator, a Job in a real pod, a request to a real peer, and a person.

use std::sync::{
    Arc,
    atomic::{AtomicU16, AtomicUsize, Ordering},
};

use axum::{Router, http::StatusCode, routing::any};
use serde_json::{Value, json};
use windlass_process_kubelet::Image;

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, message};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// The peer of hooks.
struct Peer {
    url: String,
    says: Arc<AtomicU16>,
    asked: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Peer {
    async fn start() -> Result<Self, Error> {
        let (says, asked) = (Arc::new(AtomicU16::new(503)), Arc::new(AtomicUsize::new(0)));
        let (answer, count) = (says.clone(), asked.clone());
        let router = Router::new().fallback(any(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let status = StatusCode::from_u16(answer.load(Ordering::Relaxed));
            std::future::ready(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://127.0.0.1:{}/{{{{set}}}}", listener.local_addr()?.port());
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, says, asked, serving })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn hooks(peer: &Peer) -> Value {
    let container = json!({"name": "backup", "image": "registry.example/true:1"});
    json!([
        {"name": "backup", "at": "BeforeRollout", "job": {"template": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [container]}}}}},
        {"name": "errors", "at": "AfterStep", "onFailure": "Rollback", "http": {
            "url": peer.url, "intervalSeconds": 1, "failure": "status == 500"}},
        {"name": "person", "at": "BeforePromotion", "approval": {}},
        {"name": "rest", "at": "AfterRollout", "wait": {"seconds": 2}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_rollout_hooks_survive_an_operator_restart() -> Result<(), Error> {
    let cluster = Cluster::shared().await;
    cluster.images.add("registry.example/true:1", Image::of("true", std::path::Path::new("/bin/true")));
    let mut farm = Farm::new(cluster, server().await, OPERATOR, "hooked").await?;
    let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/hook-jobs-one-namespace.yaml");
    farm.place.kubectl(&["apply", "-f", rights]).await?;
    let peer = Peer::start().await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;

    let steps = json!([{"percent": 20, "pauseSeconds": 1, "hooks": true}, {"percent": 60}]);
    farm.patch(json!({"spec": {"hooks": hooks(&peer), "rollout": {"steps": steps}}})).await?;
    farm.set_image("2").await?;
    farm.until("the peer is waited for", |seen| message(seen, "UpToDate").contains("hook errors")).await?;
    farm.kill_operator().await;
    farm.start_operator()?;
    let before = peer.asked.load(Ordering::Relaxed);
    farm.until("it was asked again", |_| peer.asked.load(Ordering::Relaxed) > before).await?;
    assert_eq!(farm.object().await?["status"]["rampPercent"], 20, "it stops after the step");
    peer.says.store(200, Ordering::Relaxed);
    let seen = farm
        .until("a person is asked", |seen| seen["status"]["hooks"][0]["state"] == "AwaitingApproval")
        .await?;
    assert_eq!(seen["status"]["rampPercent"], 60, "{:#}", seen["status"]);
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    let jobs = farm.place.api("batch/v1", "Job").list(&kube::api::ListParams::default()).await?;
    assert_eq!(jobs.items.len(), 1, "one Job for its task, whatever was killed");
    let job = json!(jobs.items[0]);
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "WorkerDeployment");
    assert_eq!(job["metadata"]["labels"]["windlass.dev/worker-deployment"], "orders");
    farm.windlass(&["approve", "wwd/orders"]).await?;
    let v2 = farm.until_current().await?;
    assert_ne!(v1, v2);
    farm.begin("on-v2").await?;

    peer.says.store(500, Ordering::Relaxed);
    farm.set_image("3").await?;
    let seen = farm.until_reason("UpToDate", "RolledBack").await?;
    assert!(message(&seen, "UpToDate").contains("hook errors"), "{}", message(&seen, "UpToDate"));
    let seen =
        farm.until("the ramp is taken back", |seen| seen["status"]["rampingBuildID"].is_null()).await?;
    assert_eq!(seen["status"]["currentBuildID"], v2.as_str());
    assert_eq!(
        seen["status"]["history"].as_array().and_then(|all| all.last()).unwrap()["reason"],
        "HookFailed"
    );
    assert_eq!((farm.end("on-v1").await?, farm.end("on-v2").await?), (v1, v2));

    for (hook, sentence) in [
        (json!({"name": "a", "at": "BeforeRollout", "http": {"url": "http://elsewhere/"}}), "not allowed"),
        (
            json!({"name": "a", "at": "AfterRollout", "http": {"url": "http://127.0.0.1/{{node}}"}}),
            "{{node}}",
        ),
        (
            json!({"name": "a", "at": "AfterRollout", "job": {"template": {"template": {"spec": {"containers": [{}]}}}}}),
            "rejects its Job",
        ),
    ] {
        farm.patch(json!({"spec": {"hooks": [hook]}})).await?;
        let seen = farm.until("it is refused", |seen| message(seen, "UpToDate").contains(sentence)).await?;
        assert_eq!(windlass_harness::temporal::farm::condition(&seen, "UpToDate").1, "InvalidSpec");
    }
    Ok(())
}
