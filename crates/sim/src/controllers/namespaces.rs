//! The namespace controller: removes a terminating namespace once it is empty.

use super::super::agenda::Job;
use super::super::server::DeleteOptions;
use super::super::store::{Key, is_terminating};
use super::super::world::World;

/// Queues a terminating namespace that lost an object.
pub(crate) fn note(world: &mut World, namespace: &str) {
    if world.find("Namespace", "", namespace).is_some_and(|found| is_terminating(&found.value)) {
        world.agenda.soon(Job::Namespace(namespace.to_owned()));
    }
}

/// Deletes the objects in a terminating namespace, then the namespace.
pub(crate) fn step(world: &mut World, name: &str) {
    let Some(kind) = world.kind("Namespace") else { return };
    let key: Key = (String::new(), name.to_owned());
    let Some(found) = world.store.get(kind.shelf, &key).cloned() else { return };
    if !found.is_terminating() {
        return;
    }
    let kinds: Vec<_> = world.kinds.all().filter(|k| k.namespaced).cloned().collect();
    let mut left = 0;
    for kind in &kinds {
        let objects: Vec<_> = world
            .store
            .list(kind.shelf, name)
            .map(|(key, object)| (key.clone(), object.is_terminating()))
            .collect();
        for (key, terminating) in objects {
            if !terminating {
                let options =
                    DeleteOptions { propagation: Some("Background".into()), ..DeleteOptions::default() };
                let _ = world.delete(kind, &key, &options);
            }
            left += usize::from(world.store.get(kind.shelf, &key).is_some());
        }
    }
    if left > 0 {
        return;
    }
    let mut value = found.value.clone();
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.remove("finalizers");
    }
    if value["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        world.remove(&kind, &key);
    } else {
        world.put(&kind, key, value);
    }
}
