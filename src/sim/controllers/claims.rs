//! The volume controllers: claims are bound to volumes made for them, and kept while a pod uses them.

use serde_json::{Value, json};

use super::super::admission::PROTECTION;
use super::super::agenda::Job;
use super::super::store::{Change, Key};
use super::super::world::World;
use super::{garbage, scheduler};

/// Lists the claims that a pod no longer uses.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    if change.after.is_some() {
        return;
    }
    for name in claims_of(&change.shown.value) {
        world.agenda.soon(Job::Claim((change.key.0.clone(), name.to_owned())));
    }
}

fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v["persistentVolumeClaim"]["claimName"].as_str())
}

/// Binds a claim, or lets one go that nobody uses.
pub(crate) fn step(world: &mut World, key: &Key) {
    let (Some(claims), Some(volumes), Some(pods)) =
        (world.kind("PersistentVolumeClaim"), world.kind("PersistentVolume"), world.kind("Pod"))
    else {
        return;
    };
    let Some(claim) = world.store.get(claims.shelf, key).cloned() else {
        free_volume(world, key);
        return;
    };
    if claim.is_terminating() {
        let used = world
            .store
            .list(pods.shelf, &key.0)
            .any(|(_, pod)| claims_of(&pod.value).any(|name| name == key.1));
        let protected = claim.value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|f| f == PROTECTION));
        if !used && protected {
            garbage::drop_finalizer(world, &claims, &(claims.shelf, key.clone()), &claim, PROTECTION);
        }
        return;
    }
    let class = claim.value["spec"]["storageClassName"].as_str().unwrap_or_default();
    if claim.value["status"]["phase"] == "Bound" || world.find("StorageClass", "", class).is_none() {
        return;
    }
    let name = format!("pvc-{}", claim.uid());
    let capacity = claim.value["spec"]["resources"]["requests"].clone();
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": world.random.uid(), "creationTimestamp": world.timestamp()},
        "spec": {
            "capacity": capacity, "accessModes": claim.value["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class, "volumeMode": "Filesystem",
            "hostPath": {"path": format!("/played/{name}"), "type": ""},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key.0, "name": key.1,
                "uid": claim.uid(), "resourceVersion": claim.version.to_string(),
            },
        },
    });
    volume["status"] = json!({"phase": "Bound"});
    world.put(&volumes, (String::new(), name.clone()), volume);
    let mut value = claim.value.clone();
    value["spec"]["volumeName"] = name.into();
    value["status"] = json!({
        "phase": "Bound", "accessModes": value["spec"]["accessModes"], "capacity": capacity,
    });
    world.put(&claims, key.clone(), value);
    scheduler::note_node(world);
}

/// A volume made for a claim goes with it.
fn free_volume(world: &mut World, key: &Key) {
    let Some(volumes) = world.kind("PersistentVolume") else { return };
    let gone: Vec<Key> = world
        .store
        .list(volumes.shelf, "")
        .filter(|(_, volume)| {
            let of = &volume.value["spec"]["claimRef"];
            of["namespace"] == key.0.as_str() && of["name"] == key.1.as_str()
        })
        .map(|(key, _)| key.clone())
        .collect();
    for volume in gone {
        world.remove(&volumes, &volume);
    }
}
