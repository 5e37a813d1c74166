//! Claims grow under the real API server's admission, each as its class does.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::process_kubelet::kit::{PATIENCE, World, create, shell};

/// Makes a bound claim and a pod that uses it, both with this name.
async fn used(world: &World, name: &str, class: &str) {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    create::<PersistentVolumeClaim>(&world.api(), claim).await;
    start(world, name).await;
}

async fn start(world: &World, name: &str) {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    world.pod(name, json!({"containers": [shell("main", "exec sleep 600")], "volumes": volumes})).await;
    world.until_ready(name).await;
}

async fn request(world: &World, name: &str, size: &str) -> Result<(), String> {
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    let patched = world.api::<PersistentVolumeClaim>().patch(name, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| error.to_string())
}

async fn until(world: &World, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let until = monotonic() + PATIENCE;
    loop {
        let claim = world.api::<PersistentVolumeClaim>().get(name).await.unwrap();
        let status = json!(claim.status);
        if holds(&status) {
            return status;
        }
        assert!(monotonic() < until, "waited in vain until {what}; last seen of {name}: {status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn has(status: &Value, condition: &str) -> bool {
    status["conditions"].as_array().into_iter().flatten().any(|there| there["type"] == condition)
}

async fn reasons(world: &World, claim: &str) -> Vec<String> {
    let of = ListParams::default().fields(&format!("involvedObject.name={claim}"));
    let events = world.api::<Event>().list(&of).await.unwrap().items;
    let of_claim = |event: &Event| event.involved_object.kind.as_deref() == Some("PersistentVolumeClaim");
    events.into_iter().filter(of_claim).filter_map(|event| event.reason).collect()
}

#[tokio::test]
#[ignore = "nightly"]
async fn claims_grow_as_their_classes_do() {
    let world = World::new("growth").await;
    for name in ["online", "offline", "slow", "never"] {
        used(&world, name, &format!("{}-{name}", &*world.ns)).await;
        request(&world, name, "2Gi").await.unwrap();
    }
    used(&world, "fixed", &world.ns).await;
    let refused = request(&world, "fixed", "2Gi").await.unwrap_err();
    assert!(refused.contains("only dynamically provisioned pvc can be resized"), "{refused}");

    let grown = until(&world, "online", "it has grown", |s| s["capacity"]["storage"] == "2Gi").await;
    assert_eq!((&grown["conditions"], &grown["allocatedResourceStatuses"]), (&Value::Null, &Value::Null));

    until(&world, "offline", "it waits for a pod", |s| has(s, "FileSystemResizePending")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let claim = world.api::<PersistentVolumeClaim>().get("offline").await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let volume = volumes.get(claim.spec.unwrap().volume_name.as_deref().unwrap()).await.unwrap();
    assert_eq!(
        json!(volume.spec.as_ref().unwrap().capacity),
        json!({"storage": "2Gi"}),
        "{}",
        volume.name_any()
    );
    assert_eq!(json!(claim.status.unwrap().capacity), json!({"storage": "1Gi"}));
    world.delete("offline", Some(1)).await;
    world.until_gone("offline").await;
    start(&world, "offline").await;
    until(&world, "offline", "it has grown", |s| s["capacity"]["storage"] == "2Gi").await;
    let told = reasons(&world, "offline").await;
    for reason in ["Resizing", "FileSystemResizeRequired", "FileSystemResizeSuccessful"] {
        assert!(told.iter().any(|there| there == reason), "{reason}: {told:?}");
    }

    until(&world, "never", "its driver fails", |s| has(s, "ControllerResizeError") && has(s, "Resizing"))
        .await;
    assert!(reasons(&world, "never").await.iter().any(|reason| reason == "VolumeResizeFailed"));
    until(&world, "slow", "it has grown", |s| s["capacity"]["storage"] == "2Gi").await;
}
