//! One sync of a set.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::super::server::DeleteOptions;
use super::super::super::store::{Key, Object};
use super::super::super::world::World;
use super::pods::{self, is_available, is_ready, revision_of};
use super::revisions::{self, Revisions};
use super::{Set, claims, status};

/// The back-off of a failed sync in milliseconds: first and longest.
const RETRY_MS: (u64, u64) = (10, 1_000_000);

/// A pod of the set, existing or to be created.
struct Replica {
    ordinal: i64,
    pod: Option<Arc<Object>>,
}

/// Syncs a set. The error is when to retry, in milliseconds.
pub(super) fn sync(world: &mut World, key: &Key, object: &Arc<Object>) -> Result<(), u64> {
    let set = Set::of(object);
    if set.spec()["selector"].is_null() {
        return Ok(());
    }
    let existing = pods::claim(world, &set);
    let Some(revisions) = revisions::resolve(world, &set) else { return Ok(()) };
    let (mut replicas, mut condemned) = partition(&set, &existing);
    let outcome = if set.object.is_terminating() {
        Ok(())
    } else {
        advance(world, &set, &revisions, &mut replicas, &mut condemned)
    };
    let pods: Vec<Arc<Object>> =
        replicas.iter().chain(&condemned).filter_map(|replica| replica.pod.clone()).collect();
    status::write(world, key, &set, &revisions, &pods);
    revisions::truncate(world, &set, &revisions, &existing);
    let now = world.now();
    let min_ready = set.min_ready_seconds();
    if min_ready > 0 && pods.iter().any(|p| is_ready(&p.value) && !is_available(&p.value, min_ready, now)) {
        world.agenda.after(super::Job::StatefulSet(key.clone()), min_ready as u64 * 1000);
    }
    match outcome {
        Ok(()) => {
            world.failures.remove(key);
            Ok(())
        }
        Err(message) => {
            let count = world.failures.entry(key.clone()).or_default();
            *count += 1;
            let delay = RETRY_MS.0.saturating_mul(1 << (*count).min(20)).min(RETRY_MS.1);
            if *count == 1 {
                world.record_event(&set.object.value, "FailedCreate", &message);
            }
            Err(delay)
        }
    }
}

/// The pods within the ordinals, and the others, highest first.
fn partition(set: &Set<'_>, existing: &[Arc<Object>]) -> (Vec<Replica>, Vec<Replica>) {
    let mut found: BTreeMap<i64, Arc<Object>> = existing
        .iter()
        .filter_map(|pod| Some((pods::ordinal(set, pod.meta("name"))?, pod.clone())))
        .collect();
    let replicas = set.ordinals().map(|ordinal| Replica { ordinal, pod: found.remove(&ordinal) }).collect();
    let condemned =
        found.into_iter().rev().map(|(ordinal, pod)| Replica { ordinal, pod: Some(pod) }).collect();
    (replicas, condemned)
}

/// Creates, deletes and repairs pods, as far as one sync goes.
fn advance(
    world: &mut World,
    set: &Set<'_>,
    revisions: &Revisions,
    replicas: &mut [Replica],
    condemned: &mut [Replica],
) -> Result<(), String> {
    let now = world.now();
    let in_order = set.in_order();
    let min_ready = set.min_ready_seconds();
    let available = |replica: &Replica| {
        replica.pod.as_ref().is_some_and(|p| is_available(&p.value, min_ready, now) && !p.is_terminating())
    };
    let first_down = replicas
        .iter()
        .chain(condemned.iter().rev())
        .find(|replica| !available(replica))
        .map(|replica| replica.ordinal);
    let mut failure = None;
    for replica in replicas.iter_mut() {
        match process(world, set, revisions, replica, in_order) {
            Ok(true) if in_order => return Ok(()),
            Ok(_) => {}
            Err(message) if in_order => return Err(message),
            Err(message) => failure = failure.or(Some(message)),
        }
    }
    if let Some(message) = failure {
        return Err(message);
    }
    for replica in condemned.iter() {
        let Some(pod) = &replica.pod else { continue };
        claims::retain(world, set, replica.ordinal, pod);
    }
    for replica in condemned.iter_mut() {
        let Some(pod) = &replica.pod else { continue };
        if pod.is_terminating() {
            if in_order {
                return Ok(());
            }
            continue;
        }
        let up = is_ready(&pod.value) && is_available(&pod.value, min_ready, now);
        if in_order && !up && first_down != Some(replica.ordinal) {
            return Ok(());
        }
        delete(world, set, replica);
        if in_order {
            return Ok(());
        }
    }
    if set.spec()["updateStrategy"]["type"] != "OnDelete" {
        roll(world, set, revisions, replicas);
    }
    Ok(())
}

/// Reconciles one replica. True if an ordered set has to stop here.
fn process(
    world: &mut World,
    set: &Set<'_>,
    revisions: &Revisions,
    replica: &mut Replica,
    in_order: bool,
) -> Result<bool, String> {
    if let Some(pod) = &replica.pod
        && matches!(pods::phase(&pod.value), "Failed" | "Succeeded")
    {
        if !pod.is_terminating() {
            delete(world, set, replica);
        }
        return Ok(true);
    }
    if replica.pod.is_none() {
        if claims::is_stale(world, set, replica.ordinal) {
            return Ok(true);
        }
        let revision = revision_for(set, revisions, replica.ordinal);
        let template = revisions::template_of(revision);
        let pod = pods::render(set, &template, revision.meta("name"), replica.ordinal);
        replica.pod = Some(pods::create(world, set, replica.ordinal, pod)?);
        if in_order {
            return Ok(true);
        }
    }
    let Some(pod) = replica.pod.clone() else { return Ok(true) };
    if pods::phase(&pod.value) == "Pending" {
        claims::create(world, set, replica.ordinal)?;
        claims::retain(world, set, replica.ordinal, &pod);
    }
    let now = world.now();
    if in_order
        && (pod.is_terminating()
            || !is_ready(&pod.value)
            || !is_available(&pod.value, set.min_ready_seconds(), now))
    {
        return Ok(true);
    }
    mend_identity(world, set, replica, &pod);
    claims::retain(world, set, replica.ordinal, &pod);
    Ok(false)
}

/// The revision for a missing pod.
fn revision_for<'a>(set: &Set<'_>, revisions: &'a Revisions, ordinal: i64) -> &'a Object {
    let strategy = &set.spec()["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    let below = if rolling.is_object() {
        ordinal < set.start() + rolling["partition"].as_i64().unwrap_or(0)
    } else {
        strategy["type"] == "RollingUpdate"
            && ordinal < set.start() + set.status()["currentReplicas"].as_i64().unwrap_or(0)
    };
    if below { &revisions.current } else { &revisions.update }
}

/// Restores the identity labels of a pod.
fn mend_identity(world: &mut World, set: &Set<'_>, replica: &mut Replica, pod: &Arc<Object>) {
    let name = set.pod_name(replica.ordinal);
    let labels = &pod.value["metadata"]["labels"];
    if labels["statefulset.kubernetes.io/pod-name"] == name.as_str() {
        return;
    }
    let Some(kind) = world.kind("Pod") else { return };
    let mut value = pod.value.clone();
    value["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.clone().into();
    value["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = replica.ordinal.to_string().into();
    replica.pod = Some(world.put(&kind, (set.namespace.to_owned(), name), value));
}

fn delete(world: &mut World, set: &Set<'_>, replica: &mut Replica) {
    let (Some(kind), Some(pod)) = (world.kind("Pod"), replica.pod.clone()) else { return };
    let key: Key = (set.namespace.to_owned(), pod.meta("name").to_owned());
    // The pod was read in this step, so the precondition holds.
    let _ = world.delete(&kind, &key, &DeleteOptions::of_uid(pod.uid()));
    replica.pod = world.store.get(kind.shelf, &key).cloned();
}

/// The rolling update: one pod at a time, from the highest ordinal down to the partition.
fn roll(world: &mut World, set: &Set<'_>, revisions: &Revisions, replicas: &mut [Replica]) {
    let partition = set.spec()["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    let now = world.now();
    for index in (partition.max(0) as usize..replicas.len()).rev() {
        let Some(pod) = replicas[index].pod.clone() else { return };
        if revision_of(&pod.value) != revisions.update.meta("name") && !pod.is_terminating() {
            delete(world, set, &mut replicas[index]);
            return;
        }
        let value: &Value = &pod.value;
        if pod.is_terminating() || !is_available(value, set.min_ready_seconds(), now) {
            return;
        }
    }
}
