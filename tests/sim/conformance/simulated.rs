//! A simulated cluster, furnished like the real one, for one case.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster, Options};

use windlass_harness::conformance::suite::{self, Case, Ctx};

/// Runs a case on a new cluster, in a runtime with paused time.
pub fn run(case: Case) -> Result<Value, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Arc::new(Cluster::start(Options::seeded(7)));
        furnish(&cluster);
        let clock = cluster.clock();
        tokio::spawn(Kubelet::new(cluster.client("kubelet", "default"), clock).storage_class("played").run());
        let client = cluster.client("conformance", "default");
        suite::prepare(&client).await;
        // The kubelet lists before it watches; the real one has had time to.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut ctx = Ctx::new(client, "simulated");
        ctx.simulated = Some(cluster);
        suite::run(case, Arc::new(ctx)).await
    })
}

fn furnish(cluster: &Cluster) {
    let room = json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"});
    for name in ["played-0", "played-1", "played-2"] {
        cluster
            .install(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": room, "allocatable": room},
            }))
            .unwrap();
    }
    cluster
        .install(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "windlass.test/played",
            "metadata": {"name": "played", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        }))
        .unwrap();
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
    cluster
        .install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "simulated"}}))
        .unwrap();
}
