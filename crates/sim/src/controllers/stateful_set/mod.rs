//! The StatefulSet controller, after Kubernetes 1.36: revisions, ordered and parallel pods, `OnDelete` and
//! `RollingUpdate`, claims, status. Its cache of the set may lag.

mod claims;
mod pods;
mod revisions;
mod status;
mod sync;

use std::sync::Arc;

use serde_json::Value;

use super::super::agenda::Job;
use super::super::store::{Change, Key, Object};
use super::super::world::World;
use super::set_of;

/// Queues a changed set, for when the controller's cache has the change.
pub(crate) fn note_set(world: &mut World, change: &Change) {
    let lag = world.agenda.pace.stateful_set_lag;
    let known = world.seen_sets.contains_key(&change.key);
    if lag == 0 && !known {
        if change.after.is_some() {
            world.agenda.soon(Job::StatefulSet(change.key.clone()));
        }
        return;
    }
    let arrives = world.agenda.now_ms + lag;
    let seen = world.seen_sets.entry(change.key.clone()).or_default();
    if seen.seen.is_none() && seen.arriving.is_empty() {
        seen.seen.clone_from(&change.before);
    }
    seen.arriving.push((arrives, change.after.clone()));
    world.agenda.after(Job::StatefulSet(change.key.clone()), lag + 1);
}

/// Queues the set of a changed pod.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    let namespace = &change.key.0;
    for object in [&change.before, &change.after].into_iter().flatten() {
        let parent =
            set_of(&object.value).or_else(|| change.key.1.rsplit_once('-').map(|(parent, _)| parent));
        if let Some(parent) = parent
            && world.find("StatefulSet", namespace, parent).is_some()
        {
            world.agenda.soon(Job::StatefulSet((namespace.clone(), parent.to_owned())));
        }
    }
}

/// Queues the sets that wait for a stale claim of their pods to go. That is no error, so they do not retry; the real
/// controller, which watches no claims, waits for the next event. Other sets retry, also while a claim is being deleted.
pub(crate) fn note_claim(world: &mut World, change: &Change) {
    if change.after.is_some() {
        return;
    }
    let Some(kind) = world.kind("StatefulSet") else { return };
    let waiting: Vec<Key> = world
        .store
        .list(kind.shelf, &change.key.0)
        .filter(|(_, set)| Set::of(set).deletes_claims("whenScaled"))
        .filter(|(key, set)| {
            set.value["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().any(|template| {
                let name = template["metadata"]["name"].as_str().unwrap_or_default();
                change.key.1.starts_with(&format!("{name}-{}-", key.1))
            })
        })
        .map(|(key, _)| key.clone())
        .collect();
    for key in waiting {
        world.agenda.soon(Job::StatefulSet(key));
    }
}

impl World {
    /// Another version of the controller takes over: it serializes differently, and re-syncs every set.
    pub(crate) fn reserialise_revisions(&mut self) {
        self.serialisation += 1;
        let Some(kind) = self.kind("StatefulSet") else { return };
        let sets: Vec<Key> = self.store.list(kind.shelf, "").map(|(key, _)| key.clone()).collect();
        for key in sets {
            self.agenda.soon(Job::StatefulSet(key));
        }
    }
}

/// The set in the controller's cache.
fn observed(world: &mut World, key: &Key) -> Option<Arc<Object>> {
    let now = world.agenda.now_ms;
    let lag = world.agenda.pace.stateful_set_lag;
    let Some(seen) = world.seen_sets.get_mut(key) else {
        return world.find("StatefulSet", &key.0, &key.1);
    };
    while seen.arriving.first().is_some_and(|(arrives, _)| *arrives <= now) {
        seen.seen = seen.arriving.remove(0).1;
    }
    let found = seen.seen.clone();
    if seen.arriving.is_empty() && (lag == 0 || found.is_none()) {
        world.seen_sets.remove(key);
    }
    found
}

/// Syncs one set.
pub(crate) fn step(world: &mut World, key: &Key) {
    let observed = observed(world, key);
    // A set that changes twice within the lag is queued once, for the first change.
    let next = world.seen_sets.get(key).and_then(|seen| seen.arriving.first()).map(|(arrives, _)| *arrives);
    if let Some(arrives) = next {
        let wait = arrives.saturating_sub(world.agenda.now_ms);
        world.agenda.after(Job::StatefulSet(key.clone()), wait);
    }
    let Some(set) = observed else { return };
    if let Err(retry) = sync::sync(world, key, &set) {
        world.agenda.after(Job::StatefulSet(key.clone()), retry);
    }
}

/// A set, with its most used fields.
struct Set<'a> {
    object: &'a Object,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Set<'a> {
    fn of(object: &'a Object) -> Self {
        Self { object, namespace: object.meta("namespace"), name: object.meta("name") }
    }

    fn spec(&self) -> &Value {
        &self.object.value["spec"]
    }

    fn status(&self) -> &Value {
        &self.object.value["status"]
    }

    fn uid(&self) -> &str {
        self.object.uid()
    }

    fn replicas(&self) -> i64 {
        self.spec()["replicas"].as_i64().unwrap_or(1)
    }

    fn start(&self) -> i64 {
        self.spec()["ordinals"]["start"].as_i64().unwrap_or(0)
    }

    /// The ordinals of its pods.
    fn ordinals(&self) -> std::ops::Range<i64> {
        self.start()..self.start() + self.replicas()
    }

    /// True if claims are deleted in this case: `whenDeleted` or `whenScaled`.
    fn deletes_claims(&self, when: &str) -> bool {
        self.spec()["persistentVolumeClaimRetentionPolicy"][when] == "Delete"
    }

    fn min_ready_seconds(&self) -> i64 {
        self.spec()["minReadySeconds"].as_i64().unwrap_or(0)
    }

    fn in_order(&self) -> bool {
        self.spec()["podManagementPolicy"] != "Parallel"
    }

    fn pod_name(&self, ordinal: i64) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The owner reference of its pods and revisions.
    fn reference(&self) -> Value {
        serde_json::json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": self.name, "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// An object with this reference added.
    fn adopted(&self, orphan: &Object) -> Value {
        let mut value = orphan.value.clone();
        let mut references = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        references.push(self.reference());
        value["metadata"]["ownerReferences"] = references.into();
        value
    }
}
