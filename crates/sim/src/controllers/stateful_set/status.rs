//! The status of a set.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::super::store::{Key, Object};
use super::super::super::world::World;
use super::Set;
use super::pods::{is_available, is_ready, phase, revision_of};
use super::revisions::Revisions;

/// Writes the status if it changed.
pub(super) fn write(
    world: &mut World,
    key: &Key,
    set: &Set<'_>,
    revisions: &Revisions,
    pods: &[Arc<Object>],
) {
    let Some(kind) = world.kind("StatefulSet") else { return };
    let Some(live) = world.store.get(kind.shelf, key).cloned() else { return };
    if live.uid() != set.uid() {
        return;
    }
    let status = compute(world, set, revisions, pods);
    let old = &live.value["status"];
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or_default();
    let differs = number(&status, "observedGeneration") > number(old, "observedGeneration")
        || ["replicas", "currentReplicas", "readyReplicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .any(|field| number(&status, field) != number(old, field))
        || ["currentRevision", "updateRevision"].iter().any(|field| status[*field] != old[*field]);
    if !differs {
        return;
    }
    let mut value = live.value.clone();
    value["status"] = status;
    world.put(&kind, key.clone(), value);
}

fn compute(world: &World, set: &Set<'_>, revisions: &Revisions, pods: &[Arc<Object>]) -> Value {
    let now = world.now();
    let (current, update) = (revisions.current.meta("name"), revisions.update.meta("name"));
    let count = |test: &dyn Fn(&Object) -> bool| pods.iter().filter(|pod| test(pod)).count() as i64;
    let replicas = count(&|pod| !phase(&pod.value).is_empty());
    let ready = count(&|pod| is_ready(&pod.value));
    let available =
        count(&|pod| is_ready(&pod.value) && is_available(&pod.value, set.min_ready_seconds(), now));
    let mut at_current = count(&|pod| !pod.is_terminating() && revision_of(&pod.value) == current);
    let at_update = count(&|pod| !pod.is_terminating() && revision_of(&pod.value) == update);
    let mut current = current;
    let wanted = set.replicas();
    if set.spec()["updateStrategy"]["type"] == "RollingUpdate"
        && at_update == wanted
        && ready == wanted
        && replicas == wanted
    {
        at_current = at_update;
        current = update;
    }
    let mut status = json!({
        "observedGeneration": set.object.value["metadata"]["generation"],
        "replicas": replicas, "availableReplicas": available, "collisionCount": revisions.collisions,
        "currentRevision": current, "updateRevision": update,
    });
    for (field, number) in
        [("readyReplicas", ready), ("currentReplicas", at_current), ("updatedReplicas", at_update)]
    {
        if number > 0 {
            status[field] = number.into();
        }
    }
    status
}
