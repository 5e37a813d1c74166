//! Unreachable sidecars: requests to them are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use windlass::clock::monotonic;
use windlass::operator::Operator;
use windlass::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest};
use windlass_sim::Options;

use windlass_harness::stage::{furnished, paused};

/// The polling interval. Reading a thousand nodes takes a while.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(5);

/// Every exchange ends with the client's time-out.
#[derive(Default)]
struct Dropped {
    asked: AtomicUsize,
}

impl Dropped {
    async fn nothing(&self) -> SidecarError {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        SidecarError::Unreachable("the sidecar did not answer within 2 s".to_owned())
    }
}

#[async_trait]
impl SidecarClient for Dropped {
    async fn status(&self, _: &str) -> Result<Status, SidecarError> {
        Err(self.nothing().await)
    }

    async fn submit<'a>(&self, _: &str, _: &TaskRequest, _: Option<&'a str>) -> Result<(), SidecarError> {
        Err(self.nothing().await)
    }

    async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        Err(self.nothing().await)
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", kind);
    Api::namespaced_with(client.clone(), "test", &ApiResource::from_gvk(&kind))
}

fn fleet(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {"image": "db:1", "podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main"}]}}}},
        },
    })
}

async fn until(what: &str, pace: Duration, holds: impl AsyncFn() -> bool) {
    for _ in 0..3_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(pace).await;
    }
    panic!("waited in vain until {what}");
}

/// How long the rollout of a fleet of three takes next to this many nodes with unreachable sidecars.
fn rolled_beside(cut_off: usize) -> Duration {
    paused(async {
        let cluster = furnished(Options::seeded(11));
        for crd in windlass::api::crd::crds() {
            cluster.install(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let sidecars = Arc::new(Dropped::default());
        let operator = Operator::new(cluster.client("windlass", "test"))
            .clock(cluster.clock())
            .sidecars(sidecars.clone());
        tokio::spawn(operator.run(std::future::pending::<()>()));
        let client = cluster.client("test", "test");
        let (fleets, nodes) = (api(&client, "NodeDeployment"), api(&client, "StatefulNode"));
        let create = async |object: Value| {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            fleets.create(&PostParams::default(), &object).await.unwrap();
        };
        let applied = async || {
            let db = fleets.get("db").await.unwrap().data;
            let status = &db["status"];
            status["phase"] == "Ready"
                && status["rollout"].is_null()
                && status["lastCompletedRolloutHash"] == status["requestedRolloutHash"]
                && status["observedGeneration"] == json!(fleets.get("db").await.unwrap().metadata.generation)
        };
        create(fleet("db", 3)).await;
        until("it serves", OFTEN, applied).await;
        if cut_off > 0 {
            let mut cut = fleet("cut", cut_off);
            cut["spec"]["template"]["spec"]["sidecar"] = json!({"image": "windlass:1"});
            create(cut).await;
            until("each of them was asked", SELDOM, async || {
                let all = nodes.list(&ListParams::default()).await.unwrap();
                let unreachable =
                    all.iter().filter(|node| node.data["status"].to_string().contains("\"Unreachable\""));
                unreachable.count() == cut_off
            })
            .await;
        }
        let began = monotonic();
        let image = Patch::Merge(json!({"spec": {"template": {"spec": {"image": "db:2"}}}}));
        fleets.patch("db", &PatchParams::default(), &image).await.unwrap();
        until("it is rolled", OFTEN, applied).await;
        let took = monotonic().duration_since(began);
        println!("beside {cut_off}: {took:?}, {} exchanges so far", sidecars.asked.load(Ordering::Relaxed));
        took
    })
}

fn held_up_by(cut_off: usize) {
    let (alone, beside) = (rolled_beside(0), rolled_beside(cut_off));
    assert!(beside <= alone + Duration::from_secs(1), "{beside:?} beside them, {alone:?} alone");
}

#[test]
fn many_sidecars_that_are_cut_off_hold_up_no_other_fleet() {
    held_up_by(150);
}
