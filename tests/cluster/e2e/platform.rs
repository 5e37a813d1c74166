//! A platform rewrites the StatefulSets that Windlass writes. No Ready pod is deleted for it outside of a
//! wave, fleets complete, and at rest nothing is written.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use windlass_sim::{Mutation, Target, proxy};

use windlass_harness::conformance::policies::{binding, policy};
use windlass_harness::kit::{Wave, World, fleet};

async fn current_images(world: &World) -> Vec<Value> {
    let nodes = world.list(&world.nodes()).await;
    nodes.iter().map(|node| node["status"]["currentImage"].clone()).collect()
}

/// Nothing is written while nobody changes anything.
async fn writes_nothing(world: &World) {
    world.until_quiet().await;
    let mark = world.cp.audit_mark().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.operator_writes(mark).await, [""; 0]);
}

/// Changes a label of every child object, and waits until everything is at rest.
async fn relabel(world: &World, team: &str) {
    world.patch_fleet(json!({"spec": {"template": {"metadata": {"labels": {"team": team}}}}})).await;
    for node in world.list(&world.nodes()).await {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let done = |set: &Value| {
            set["metadata"]["labels"]["team"] == team
                && set["status"]["observedGeneration"] == set["metadata"]["generation"]
        };
        world.until(&world.sets(), name, "its labels follow", done).await;
    }
    world.until_quiet().await;
}

/// A new image is rolled out in its wave, each pod is replaced once, and then everything is at rest.
async fn rolls_in_its_wave(world: &World, replicas: usize) {
    let wave = Wave::watch(world, replicas).await;
    world.set_image("db:2").await;
    let done = world.until_applied().await;
    let seen = wave.at_most(1).await;
    for ordinal in 0..replicas {
        assert_eq!(seen.replaced(&format!("db-{ordinal}-0")), 1, "{seen:#?}");
    }
    assert_eq!(current_images(world).await, vec![json!("db:2"); replicas]);
    assert_eq!(done["status"]["phase"], "Ready", "{done:#}");
    writes_nothing(world).await;
}

/// Waits until the API server applies the policy, or no longer does.
async fn until_obeyed(world: &World, obeyed: bool) {
    let probe = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "probe"}, "spec": {
        "serviceName": "probe", "selector": {"matchLabels": {"app": "probe"}},
        "template": {"metadata": {"labels": {"app": "probe"}},
            "spec": {"containers": [{"name": "main", "image": "probe:1"}]}},
    }});
    let probe: DynamicObject = serde_json::from_value(probe).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // A few in a row: the change takes effect asynchronously.
    let mut seen = 0;
    for _ in 0..1_000 {
        let made = world.sets().create(&dry_run, &probe).await.unwrap();
        let containers = made.data["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len);
        seen = if (containers == Some(2)) == obeyed { seen + 1 } else { 0 };
        if seen == 3 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the policy is obeyed: {}", !obeyed);
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_completes_with_injected_first_proxy_container() {
    let world = World::new("platform").await;
    let name = format!("{}-proxy", &*world.ns);
    let first = Mutation::Container { container: proxy("proxy"), first: true };
    for (kind, mut object) in [
        ("MutatingAdmissionPolicy", policy(&name, Target::Templates, &first)),
        ("MutatingAdmissionPolicyBinding", binding(&name, &world.ns)),
    ] {
        object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        object["kind"] = json!(kind);
        world.cp.kubectl_with(&["create", "-f", "-"], &object.to_string()).await.ok();
    }
    until_obeyed(&world, true).await;
    let made = world.settled_fleet(fleet(2, "db:1")).await;
    assert_eq!(made["status"]["phase"], "Ready", "{made:#}");
    assert_eq!(current_images(&world).await, ["db:1"; 2]);
    rolls_in_its_wave(&world, 2).await;
    // What admission no longer adds stays until its pod is replaced.
    let pods = world.pod_uids().await;
    for kind in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
        world.cp.kubectl(&["delete", kind, &name]).await.ok();
    }
    until_obeyed(&world, false).await;
    relabel(&world, "storage").await;
    writes_nothing(&world).await;
    assert_eq!(world.pod_uids().await, pods);
}
