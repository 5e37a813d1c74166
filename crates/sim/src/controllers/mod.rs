//! The controllers. Each reconcile step reads one object and makes the writes of the real controller. One task runs
//! all of them, in an order that the seed decides.

mod claims;
mod endpoints;
mod garbage;
mod jobs;
mod namespaces;
mod scheduler;
mod stateful_set;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::agenda::Job;
use super::kinds::Kind;
use super::shared::Shared;
use super::store::{Change, controller_of, is_terminating};
use super::world::World;

/// The most steps at one point in time; more indicates an endless loop.
const STEPS_AT_ONCE: usize = 1_000_000;

/// Runs the controllers while the cluster exists.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let due = {
            let mut world = shared.lock();
            for _ in 0..STEPS_AT_ONCE {
                let Some(job) = world.agenda.take() else { break };
                step(&mut world, job);
            }
            world.agenda.next_due()
        };
        // In a fixed order: tokio's default is random.
        tokio::select! {
            biased;
            () = shared.wake.notified() => {}
            () = until(&shared, due) => {}
        }
    }
}

/// Adds a name to an index, or removes it. Empty entries are removed.
fn index<K: Ord, V: Clone + Ord>(names: &mut BTreeMap<K, BTreeSet<V>>, key: K, name: &V, present: bool) {
    if present {
        names.entry(key).or_default().insert(name.clone());
    } else if let Some(known) = names.get_mut(&key) {
        known.remove(name);
        if known.is_empty() {
            names.remove(&key);
        }
    }
}

async fn until(shared: &Shared, due_ms: Option<u64>) {
    match due_ms {
        Some(due) => tokio::time::sleep_until(shared.at_ms(due)).await,
        None => std::future::pending().await,
    }
}

fn step(world: &mut World, job: Job) {
    match job {
        Job::StatefulSet(key) => stateful_set::step(world, &key),
        Job::Collect(place) => garbage::collect(world, &place),
        Job::Release(place) => garbage::release(world, &place),
        Job::Namespace(name) => namespaces::step(world, &name),
        Job::Schedule(key) => scheduler::step(world, &key),
        Job::Claim(key) => claims::step(world, &key),
        Job::Endpoints(key) => endpoints::step(world, &key),
        Job::Work(key) => jobs::step(world, &key),
    }
}

impl World {
    /// Updates the indexes and queues the follow-up work of a change.
    pub(crate) fn follow(&mut self, kind: &Kind, change: &Change) {
        if kind.is("CustomResourceDefinition") {
            self.serve_definition(change);
        }
        note(self, kind, change);
    }
}

/// Queues the follow-up work of a change.
fn note(world: &mut World, kind: &Kind, change: &Change) {
    garbage::note(world, change);
    if kind.namespaced && change.after.is_none() {
        namespaces::note(world, &change.key.0);
    }
    if kind.is_custom() {
        return;
    }
    match kind.kind.as_str() {
        "StatefulSet" => stateful_set::note_set(world, change),
        "Job" if change.after.is_some() => world.agenda.soon(Job::Work(change.key.clone())),
        "Pod" => {
            jobs::note_pod(world, change);
            stateful_set::note_pod(world, change);
            scheduler::note_pod(world, change);
            endpoints::note_pod(world, change);
            claims::note_pod(world, change);
        }
        "PersistentVolumeClaim" => {
            claims::note_claim(world, change);
            stateful_set::note_claim(world, change);
            scheduler::note_claim(world, &change.key);
        }
        "Service" => endpoints::note_service(world, change),
        "Node" => scheduler::note_node(world),
        "Namespace" if is_terminating(&change.shown.value) && change.after.is_some() => {
            world.agenda.soon(Job::Namespace(change.key.1.clone()));
        }
        _ => {}
    }
}

/// The name of the StatefulSet that controls an object.
fn set_of(value: &serde_json::Value) -> Option<&str> {
    let owner = controller_of(value)?;
    (owner["kind"] == "StatefulSet").then(|| owner["name"].as_str())?
}
