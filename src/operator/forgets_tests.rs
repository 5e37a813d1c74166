//! The operator keeps nothing of fleets that are gone.

use std::sync::Weak;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster as Simulated, Options};

use super::*;
use crate::sidecar::HttpSidecar;

fn furnished() -> Simulated {
    let cluster = Simulated::start(Options::seeded(1));
    let room = json!({"cpu": "100", "memory": "1Ti", "pods": "1000"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played-0"},
        "status": {"capacity": room, "allocatable": room}});
    cluster.install(node).unwrap();
    cluster.install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    for definition in crate::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
    tokio::spawn(Kubelet::new(cluster.client("kubelet", "default"), cluster.clock()).run());
    cluster
}

fn fleet(image: &str) -> DynamicObject {
    let fleet = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {"replicas": 3, "updateStrategy": {"type": "InPlace"}, "template": {"spec": {
            "image": image, "volumeClaimRetention": "Delete",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
            "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main"}]}}}}},
    });
    serde_json::from_value(fleet).unwrap()
}

#[tokio::test(start_paused = true)]
async fn deleted_fleet_leaves_no_cached_state() {
    let cluster = furnished();
    let client = cluster.client("windlass", "shop");
    let operator = Operator::new(client.clone()).clock(cluster.clock());
    let peers = Peers {
        sidecars: Arc::new(HttpSidecar::new(HttpSidecar::DEFAULT_TIMEOUT)),
        hooks: Arc::new(HttpClient::new(KeptConnections::None)),
        neighbours: Arc::default(),
    };
    let registry = Arc::new(Registry::builtin_recipes());
    let (mut event_senders, mut helpers) = (JoinSet::new(), JoinSet::new());
    let view = View::shared();
    let context =
        operator.context(view.clone(), &client, &registry, &peers, &Fence::default(), &mut event_senders);
    let kept_of = context.clone();
    let sizes = || {
        let mut sizes = [kept_of.caches.probes.sizes(), kept_of.caches.computed.sizes()].concat();
        sizes.extend([
            ("sightings", kept_of.sightings.size()),
            ("status_writes", kept_of.status_writes.size()),
            ("failures", kept_of.failures.size()),
            ("deleted_jobs", kept_of.deleted_jobs.size()),
        ]);
        sizes
    };
    let never = std::future::pending::<()>().boxed().shared();
    tokio::spawn(operator.run_scope(&Namespaces::All, context, &mut helpers, never));

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment"));
    let fleets: Api<DynamicObject> = Api::namespaced_with(cluster.client("person", "shop"), "shop", &kind);
    let mut kept: Vec<(Weak<_>, Vec<Weak<_>>)> = Vec::new();
    for image in ["db:1", "db:2", "db:3"] {
        fleets.create(&PostParams::default(), &fleet(image)).await.unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        let known = view.fleets.get(&Key::new("shop", "db")).unwrap();
        assert!(known.status.last_completed().is_some(), "{:?}", known.status);
        let nodes = view.nodes.group("shop", &known.meta.uid);
        assert_eq!(nodes.len(), 3);
        let of = |what: &str| sizes().into_iter().find(|(name, _)| *name == what).unwrap().1;
        assert_eq!((of("settled"), of("released"), of("rendered")), (1, 1, 3), "{:?}", sizes());
        kept.push((Arc::downgrade(&known), nodes.iter().map(Arc::downgrade).collect()));
        // Without a pause, the next fleet of this name takes the place of this one.
        fleets.delete("db", &DeleteParams::background()).await.unwrap();
        while fleets.get_opt("db").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    let left: Vec<_> = sizes().into_iter().filter(|(_, size)| *size > 0).collect();
    assert_eq!(left, []);
    for (fleet, nodes) in kept {
        assert!(fleet.upgrade().is_none() && nodes.iter().all(|node| node.upgrade().is_none()));
    }
}
