//! The revisions of a set: naming, numbering and comparison as in the real controller.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::super::admission;
use super::super::super::kinds::Kind;
use super::super::super::random::safe_encoded;
use super::super::super::selector::LabelSelector;
use super::super::super::store::{Key, Object, controller_of};
use super::super::super::world::World;
use super::Set;

/// A set's revisions, oldest first, with the current and the update one.
pub(super) struct Revisions {
    pub all: Vec<Arc<Object>>,
    pub current: Arc<Object>,
    pub update: Arc<Object>,
    /// The number of hash collisions so far.
    pub collisions: i64,
}

/// Finds or creates the revision of the set's template.
pub(super) fn resolve(world: &mut World, set: &Set<'_>) -> Option<Revisions> {
    let kind = world.kind("ControllerRevision")?;
    adopt(world, set, &kind);
    let mut all = list(world, set)?;
    let data = data_of(&set.spec()["template"], world.serialisation);
    let next = all.last().map_or(0, |last| number(last)) + 1;
    let equal = all.iter().rposition(|revision| revision.value["data"] == data);
    let mut collisions = set.status()["collisionCount"].as_i64().unwrap_or_default();
    let update = match equal {
        Some(index) if index + 1 == all.len() => all[index].clone(),
        Some(index) => {
            let mut value = all[index].value.clone();
            value["revision"] = next.into();
            let key = (set.namespace.to_owned(), all[index].meta("name").to_owned());
            world.put(&kind, key, value)
        }
        None if all.last().is_some_and(|last| means_the_same(world, set, last)) => all.last().cloned()?,
        None => make(world, set, &data, next, &mut collisions)?,
    };
    if equal.is_none() && all.last().is_none_or(|last| last.meta("name") != update.meta("name")) {
        all.push(update.clone());
    }
    let wanted = set.status()["currentRevision"].as_str().unwrap_or_default();
    let current = all.iter().find(|r| r.meta("name") == wanted).unwrap_or(&update).clone();
    Some(Revisions { all, current, update, collisions })
}

/// True if the set with this revision's template is semantically equal: since 1.36 the controller does not compare
/// bytes only.
fn means_the_same(world: &World, set: &Set<'_>, revision: &Object) -> bool {
    let Some(kind) = world.kind("StatefulSet").filter(|_| world.serialisation == 0) else { return false };
    let mut restored = set.object.value.clone();
    let mut template = template_of(revision);
    if let Some(metadata) = template["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    restored["spec"]["template"] = template;
    admission::default(&kind, &mut restored, None);
    restored["spec"]["template"] == set.spec()["template"]
}

/// Adopts the matching revisions without a controller, such as those of a set that was deleted and left its pods.
fn adopt(world: &mut World, set: &Set<'_>, kind: &Kind) {
    let Some(selector) = LabelSelector::of(&set.spec()["selector"]) else { return };
    if set.object.is_terminating() {
        return;
    }
    let prefix = format!("{}-", set.name);
    let orphans: Vec<(Key, Arc<Object>)> = world
        .store
        .list_named(kind.shelf, set.namespace, &prefix)
        .filter(|(_, revision)| controller_of(&revision.value).is_none() && !revision.is_terminating())
        .filter(|(_, revision)| selector.matches(&revision.value))
        .map(|(key, revision)| (key.clone(), revision.clone()))
        .collect();
    for (key, revision) in orphans {
        world.put(kind, key, set.adopted(&revision));
    }
}

/// The revisions of a set.
fn list(world: &World, set: &Set<'_>) -> Option<Vec<Arc<Object>>> {
    let kind = world.kind("ControllerRevision")?;
    let mut all: Vec<Arc<Object>> = world
        .store
        .dependents(set.uid())
        .into_iter()
        .filter(|(shelf, _)| *shelf == kind.shelf)
        .filter_map(|(shelf, key)| world.store.get(shelf, &key).cloned())
        .collect();
    all.sort_by_key(|r| (number(r), r.meta("creationTimestamp").to_owned(), r.meta("name").to_owned()));
    Some(all)
}

fn number(revision: &Object) -> i64 {
    revision.value["revision"].as_i64().unwrap_or_default()
}

/// The data of a revision: the template as a patch that replaces it. Controllers up to 1.33 serialize an unset
/// creationTimestamp: every other version does so here.
fn data_of(template: &Value, serialisation: u32) -> Value {
    let mut template = template.clone();
    template["$patch"] = "replace".into();
    if !serialisation.is_multiple_of(2) {
        template["metadata"]["creationTimestamp"] = Value::Null;
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision stores.
pub(super) fn template_of(revision: &Object) -> Value {
    let mut template = revision.value["data"]["spec"]["template"].clone();
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
    }
    template
}

fn make(
    world: &mut World,
    set: &Set<'_>,
    data: &Value,
    number: i64,
    collisions: &mut i64,
) -> Option<Arc<Object>> {
    let kind = world.kind("ControllerRevision")?;
    for _ in 0..100 {
        let hash = hash(data, *collisions);
        let name = format!("{}-{hash}", set.name);
        let key: Key = (set.namespace.to_owned(), name.clone());
        if let Some(taken) = world.store.get(kind.shelf, &key) {
            if taken.value["data"] == *data {
                return Some(taken.clone());
            }
            *collisions += 1;
            continue;
        }
        let mut labels: Map<String, Value> =
            set.spec()["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        labels.insert("controller.kubernetes.io/hash".into(), hash.into());
        let mut metadata = json!({
            "name": name, "namespace": set.namespace, "uid": world.random.uid(),
            "creationTimestamp": world.timestamp(), "labels": labels, "ownerReferences": [set.reference()],
        });
        let annotations = &set.object.value["metadata"]["annotations"];
        if annotations.as_object().is_some_and(|map| !map.is_empty()) {
            metadata["annotations"] = annotations.clone();
        }
        let value = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata,
            "data": data, "revision": number,
        });
        return Some(world.put(&kind, key, value));
    }
    None
}

/// FNV-1 over the data as Go marshals it, and the collision count.
fn hash(data: &Value, collisions: i64) -> String {
    let text = data.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    let mut hash: u32 = 2_166_136_261;
    for byte in text.bytes().chain(collisions.to_string().bytes()) {
        hash = hash.wrapping_mul(16_777_619) ^ u32::from(byte);
    }
    safe_encoded(&hash.to_string())
}

/// Deletes unreferenced revisions beyond the limit.
pub(super) fn truncate(world: &mut World, set: &Set<'_>, revisions: &Revisions, pods: &[Arc<Object>]) {
    let limit = set.spec()["revisionHistoryLimit"].as_i64().unwrap_or(10);
    let live = |revision: &Object| {
        let name = revision.meta("name");
        name == revisions.current.meta("name")
            || name == revisions.update.meta("name")
            || pods.iter().any(|pod| super::pods::revision_of(&pod.value) == name)
    };
    let history: Vec<&Arc<Object>> = revisions.all.iter().filter(|r| !live(r)).collect();
    let Some(kind) = world.kind("ControllerRevision") else { return };
    let excess = history.len().saturating_sub(limit.max(0) as usize);
    for revision in history.into_iter().take(excess) {
        world.remove(&kind, &(set.namespace.to_owned(), revision.meta("name").to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1_of_the_go_encoded_json() {
        // Recorded from a real control plane by the conformance suite: see tests/sim/conformance.
        assert_eq!(hash(&json!({}), 0), safe_encoded("777742067"));
    }
}
