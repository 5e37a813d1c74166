//! The volume controllers of claims: protection while a pod uses a claim, and deletion of its volume. The simulated
//! kubelet binds claims, here as on a real control plane.

use serde_json::Value;

use super::super::admission::PROTECTION;
use super::super::agenda::Job;
use super::super::store::{Change, Key};
use super::super::world::World;
use super::garbage;

/// Queues the claims that a pod no longer uses.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    if change.after.is_some() {
        return;
    }
    for name in claims_of(&change.shown.value) {
        world.agenda.soon(Job::Claim((change.key.0.clone(), name.to_owned())));
    }
}

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v["persistentVolumeClaim"]["claimName"].as_str())
}

/// Removes the protection of an unused claim.
pub(crate) fn step(world: &mut World, key: &Key) {
    let (Some(claims), Some(pods)) = (world.kind("PersistentVolumeClaim"), world.kind("Pod")) else { return };
    let Some(claim) = world.store.get(claims.shelf, key).cloned() else { return };
    let protected = claim.value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|f| f == PROTECTION));
    if !claim.is_terminating() || !protected {
        return;
    }
    let used =
        world.store.list(pods.shelf, &key.0).any(|(_, pod)| claims_of(&pod.value).any(|name| name == key.1));
    if !used {
        garbage::drop_finalizer(world, &claims, &(claims.shelf, key.clone()), &claim, PROTECTION);
    }
}

/// Queues a changed claim, and deletes the volume of a deleted one.
pub(crate) fn note_claim(world: &mut World, change: &Change) {
    if change.after.is_some() {
        world.agenda.soon(Job::Claim(change.key.clone()));
        return;
    }
    let volume = change.shown.value["spec"]["volumeName"].as_str().unwrap_or_default();
    if let Some(kind) = world.kind("PersistentVolume") {
        world.remove(&kind, &(String::new(), volume.to_owned()));
    }
}
