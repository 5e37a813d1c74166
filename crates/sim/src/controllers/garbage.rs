//! The garbage collector: deletes objects without owners, completes foreground deletions, and orphans dependents.

use std::sync::Arc;

use serde_json::Value;

use super::super::agenda::Job;
use super::super::kinds::Kind;
use super::super::server::{DeleteOptions, FOREGROUND, ORPHAN};
use super::super::store::{Change, Object, Place, owners};
use super::super::world::World;

/// Queues what a change may have orphaned or completed.
pub(crate) fn note(world: &mut World, change: &Change) {
    let place: Place = (change.shelf, change.key.clone());
    let uid = change.shown.uid().to_owned();
    match &change.after {
        None => {
            for dependent in world.store.dependents(&uid) {
                world.agenda.soon(Job::Collect(dependent));
            }
            // An owner in foreground deletion is checked again when a dependent is gone.
            note_waiting_owners(world, change);
        }
        Some(after) => {
            if after.is_terminating() && (has(after, FOREGROUND) || has(after, ORPHAN)) {
                world.agenda.soon(Job::Release(place.clone()));
            }
            let changed = change.before.as_ref().is_none_or(|before| {
                before.value["metadata"]["ownerReferences"] != after.value["metadata"]["ownerReferences"]
            });
            if changed && owners(&after.value).next().is_some() {
                world.agenda.soon(Job::Collect(place));
            }
            if changed {
                note_waiting_owners(world, change);
            }
        }
    }
}

fn note_waiting_owners(world: &mut World, change: &Change) {
    let Some(before) = &change.before else { return };
    let waiting: Vec<Place> =
        owners(&before.value).filter_map(|uid| world.store.by_uid(uid).cloned()).collect();
    for owner in waiting {
        if object(world, &owner).is_some_and(|(_, o)| o.is_terminating() && has(&o, FOREGROUND)) {
            world.agenda.soon(Job::Release(owner));
        }
    }
}

fn has(object: &Object, finalizer: &str) -> bool {
    object.value["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == finalizer))
}

fn object(world: &World, place: &Place) -> Option<(Arc<Kind>, Arc<Object>)> {
    let kind = world.kinds.of_shelf(place.0)?.clone();
    let object = world.store.get(place.0, &place.1)?.clone();
    Some((kind, object))
}

/// The owner of a reference, if it exists with the same UID and in scope.
fn owner(world: &World, dependent: &Object, reference: &Value) -> Option<Arc<Object>> {
    let place = world.store.by_uid(reference["uid"].as_str()?)?;
    let (kind, found) = object(world, place)?;
    let in_reach = !kind.namespaced || found.meta("namespace") == dependent.meta("namespace");
    let named = reference["kind"] == kind.kind.as_str() && reference["name"] == found.meta("name");
    (in_reach && named).then_some(found)
}

/// Deletes an object whose owners are all gone or in foreground deletion.
pub(crate) fn collect(world: &mut World, place: &Place) {
    let Some((kind, found)) = object(world, place) else { return };
    let references = found.value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    // A terminating object is left alone, except in foreground deletion, which its own `Release` handles.
    if references.is_empty() || found.is_terminating() {
        return;
    }
    let (mut solid, mut waiting) = (Vec::new(), 0);
    for reference in &references {
        match owner(world, &found, reference) {
            Some(owner) if owner.is_terminating() && has(&owner, FOREGROUND) => waiting += 1,
            Some(_) => solid.push(reference.clone()),
            None => {}
        }
    }
    if !solid.is_empty() {
        if solid.len() < references.len() {
            let mut value = found.value.clone();
            value["metadata"]["ownerReferences"] = solid.into();
            world.put(&kind, place.1.clone(), value);
        }
        return;
    }
    let has_dependents = !world.store.dependents(found.uid()).is_empty();
    let policy = if has(&found, ORPHAN) {
        "Orphan"
    } else if has(&found, FOREGROUND) || (waiting > 0 && has_dependents) {
        "Foreground"
    } else {
        "Background"
    };
    let options = DeleteOptions {
        version: Some(found.version.to_string()),
        propagation: Some(policy.into()),
        ..DeleteOptions::of_uid(found.uid())
    };
    // Both preconditions were read just now, so it cannot be refused.
    let _ = world.delete(&kind, &place.1, &options);
}

/// Continues a foreground deletion, or orphans the dependents.
pub(crate) fn release(world: &mut World, place: &Place) {
    let Some((kind, found)) = object(world, place) else { return };
    if !found.is_terminating() {
        return;
    }
    let dependents = world.store.dependents(found.uid());
    let has_dependents = !dependents.is_empty();
    if has(&found, ORPHAN) {
        for dependent in dependents {
            let Some((kind, object)) = object(world, &dependent) else { continue };
            let mut value = object.value.clone();
            if let Some(references) = value["metadata"]["ownerReferences"].as_array_mut() {
                references.retain(|r| r["uid"] != found.uid());
                if references.is_empty()
                    && let Some(metadata) = value["metadata"].as_object_mut()
                {
                    metadata.remove("ownerReferences");
                }
            }
            world.put(&kind, dependent.1.clone(), value);
        }
        // The object is there for another moment, and no longer their owner.
        if has_dependents {
            world.agenda.soon(Job::Release(place.clone()));
        } else {
            drop_finalizer(world, &kind, place, &found, ORPHAN);
        }
        return;
    }
    if !has(&found, FOREGROUND) {
        return;
    }
    let blocking =
        dependents.iter().any(|dependent| {
            object(world, dependent).is_some_and(|(_, o)| {
                o.value["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|reference| {
                    reference["uid"] == found.uid() && reference["blockOwnerDeletion"] == true
                })
            })
        });
    if !blocking {
        drop_finalizer(world, &kind, place, &found, FOREGROUND);
    }
    for dependent in dependents {
        collect(world, &dependent);
    }
}

/// Removes a finalizer; the object goes with the last one.
pub(crate) fn drop_finalizer(
    world: &mut World,
    kind: &Arc<Kind>,
    place: &Place,
    found: &Object,
    finalizer: &str,
) {
    let mut value = found.value.clone();
    let mut left = value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    left.retain(|f| f != finalizer);
    let grace = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    if left.is_empty() {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
        if found.is_terminating() && grace == 0 {
            world.remove(kind, &place.1);
            return;
        }
    } else {
        value["metadata"]["finalizers"] = left.into();
    }
    world.put(kind, place.1.clone(), value);
}
