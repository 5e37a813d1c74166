//! The scheduler: binds pods to the first node with room, or sets the condition PodScheduled.

use serde_json::{Value, json};

use super::super::agenda::Job;
use super::super::kinds::Kind;
use super::super::store::{Change, Key};
use super::super::types::Quantity;
use super::super::world::World;
use super::claims::claims_of;
use super::index;

/// The resources that nodes have limited amounts of.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Queues an unscheduled pod, and, after a deletion, the pods that wait for room.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    note_room(world, change);
    let pod = change.after.as_ref().map(|pod| &pod.value);
    note_unplaced(world, change, pod.is_some_and(|pod| is_waiting(pod) && has_unschedulable(pod)));
    match pod {
        Some(pod) if is_waiting(pod) && is_new(change) => {
            world.agenda.soon(Job::Schedule(change.key.clone()));
        }
        None => note_node(world),
        _ => {}
    }
}

/// A pod is queued when it is created or its spec changes, not for the scheduler's own condition.
fn is_new(change: &Change) -> bool {
    let Some((before, after)) = change.before.as_ref().zip(change.after.as_ref()) else { return true };
    before.value["spec"] != after.value["spec"]
        || before.value["metadata"]["labels"] != after.value["metadata"]["labels"]
}

/// Maintains the unscheduled pods and the claims that they use, which never change.
fn note_unplaced(world: &mut World, change: &Change, is_waiting: bool) {
    let key = &change.key;
    let changed = if is_waiting { world.unplaced.insert(key.clone()) } else { world.unplaced.remove(key) };
    if !changed {
        return;
    }
    for claim in claims_of(&change.shown.value) {
        index(&mut world.awaited, (key.0.clone(), claim.to_owned()), key, is_waiting);
    }
}

/// Maintains the sums of requests per node: adding them up for each pod would be slow with thousands.
fn note_room(world: &mut World, change: &Change) {
    let requests = |pod: &Value| {
        let node = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())?;
        Some((node.to_owned(), RESOURCES.map(|resource| requested(pod, resource))))
    };
    let before = change.before.as_ref().and_then(|pod| requests(&pod.value));
    let after = change.after.as_ref().and_then(|pod| requests(&pod.value));
    if before == after {
        return;
    }
    for (sign, requests) in [(-1, before), (1, after)] {
        let Some((node, requests)) = requests else { continue };
        let sums = world.requested_by_node.entry(node).or_default();
        for (sum, requests) in sums.iter_mut().zip(requests) {
            *sum += sign * requests;
        }
    }
}

/// Queues the pods that wait for a changed claim.
pub(crate) fn note_claim(world: &mut World, claim: &Key) {
    for key in world.awaited.get(claim).into_iter().flatten() {
        world.agenda.soon(Job::Schedule(key.clone()));
    }
}

/// Queues every unscheduled pod: there may be room now.
pub(crate) fn note_node(world: &mut World) {
    for key in &world.unplaced {
        world.agenda.soon(Job::Schedule(key.clone()));
    }
}

fn is_waiting(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && pod["metadata"]["deletionTimestamp"].is_null()
        && pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler") == "default-scheduler"
}

fn has_unschedulable(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "PodScheduled" && c["status"] == "False"))
}

/// Tries to schedule a pod.
pub(crate) fn step(world: &mut World, key: &Key) {
    let Some(kind) = world.kind("Pod") else { return };
    let Some(pod) = world.store.get(kind.shelf, key).cloned() else { return };
    if !is_waiting(&pod.value) {
        return;
    }
    match place(world, key, &pod.value) {
        Ok(node) => world.bind_to(&kind, key, &node),
        Err(message) => {
            let mut value = pod.value.clone();
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "lastProbeTime": null, "lastTransitionTime": world.timestamp(),
                "observedGeneration": pod.value["metadata"]["generation"],
            });
            if set_condition(&mut value, condition) {
                world.put(&kind, key.clone(), value);
            }
        }
    }
}

/// Sets a condition by its type; false if nothing changed.
fn set_condition(pod: &mut Value, mut condition: Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) => {
            if found["status"] == condition["status"] {
                condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
            }
            if *found == condition {
                return false;
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
    pod["status"]["conditions"] = conditions.into();
    true
}

impl World {
    /// Binds a pod to a node.
    pub(crate) fn bind_to(&mut self, kind: &Kind, key: &Key, node: &str) {
        let Some(pod) = self.store.get(kind.shelf, key).cloned() else { return };
        let mut value = pod.value.clone();
        value["spec"]["nodeName"] = node.into();
        self.copy_topology(&mut value, node);
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": self.timestamp(), "observedGeneration": pod.value["metadata"]["generation"],
        });
        set_condition(&mut value, condition);
        self.put(kind, key.clone(), value);
    }
}

/// The labels of a node that the API server copies to a pod that is bound to it, since version 1.35.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl World {
    fn copy_topology(&self, pod: &mut Value, node: &str) {
        let Some(nodes) = self.kind("Node") else { return };
        let Some(node) = self.store.get(nodes.shelf, &(String::new(), node.to_owned())) else { return };
        for label in TOPOLOGY_LABELS {
            let found = &node.value["metadata"]["labels"][label];
            if found.is_string() {
                pod["metadata"]["labels"][label] = found.clone();
            }
        }
    }
}

/// The node for a pod, or the scheduler's message.
fn place(world: &World, key: &Key, pod: &Value) -> Result<String, String> {
    if let Some(why) = missing_claim(world, key, pod) {
        return Err(why);
    }
    let Some(nodes) = world.kind("Node") else { return Err(String::new()) };
    let mut reasons: Vec<(String, usize)> = Vec::new();
    let mut count = 0;
    for ((_, name), node) in world.store.list(nodes.shelf, "") {
        count += 1;
        let reason = match refusal(pod, &node.value) {
            Some(reason) => Some(reason),
            None => lack(world, pod, name, &node.value),
        };
        match reason {
            None => return Ok(name.clone()),
            Some(reason) => match reasons.iter_mut().find(|(r, _)| *r == reason) {
                Some((_, n)) => *n += 1,
                None => reasons.push((reason, 1)),
            },
        }
    }
    if count == 0 {
        return Err("no nodes available to schedule pods".into());
    }
    let list: Vec<String> = reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    Err(sentence(count, &list.join(", ")))
}

/// The scheduler's message. All pods have equal priority, so preemption never helps.
fn sentence(nodes: usize, why: &str) -> String {
    format!(
        "0/{nodes} nodes are available: {why}. no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )
}

fn missing_claim(world: &World, key: &Key, pod: &Value) -> Option<String> {
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() else { continue };
        match world.find("PersistentVolumeClaim", &key.0, name) {
            None => {
                return Some(format!(
                    "0/1 nodes are available: persistentvolumeclaim {name:?} not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
                ));
            }
            Some(claim) if claim.is_terminating() => {
                return Some(format!(
                    "0/1 nodes are available: persistentvolumeclaim {name:?} is being deleted. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
                ));
            }
            Some(claim) if claim.value["status"]["phase"] != "Bound" => {
                return Some("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.".into());
            }
            Some(_) => {}
        }
    }
    None
}

fn refusal(pod: &Value, node: &Value) -> Option<String> {
    if node["spec"]["unschedulable"] == true {
        return Some("node(s) were unschedulable".into());
    }
    for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
        let tolerated = pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|t| {
            (t["key"] == taint["key"] || t["key"].is_null())
                && (t["effect"] == taint["effect"] || t["effect"].is_null())
                && (t["operator"] == "Exists" || t["value"] == taint["value"])
        });
        if !tolerated && taint["effect"] != "PreferNoSchedule" {
            return Some("node(s) had untolerated taint(s)".into());
        }
    }
    let labels = &node["metadata"]["labels"];
    let selected = pod["spec"]["nodeSelector"]
        .as_object()
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value));
    (!selected).then(|| "node(s) didn't match Pod's node affinity/selector".into())
}

/// The resource that the node lacks.
fn lack(world: &World, pod: &Value, name: &str, node: &Value) -> Option<String> {
    let used = world.requested_by_node.get(name).copied().unwrap_or_default();
    for (resource, used) in RESOURCES.into_iter().zip(used) {
        let wanted = requested(pod, resource);
        let capacity = node["status"]["allocatable"][resource]
            .as_str()
            .or_else(|| node["status"]["capacity"][resource].as_str());
        let Some(capacity) = capacity.and_then(|text| Quantity::parse(text).ok()).map(|q| q.millis()) else {
            continue;
        };
        if wanted > 0 && used + wanted > capacity {
            return Some(format!("Insufficient {resource}"));
        }
    }
    None
}

fn requested(pod: &Value, resource: &str) -> i128 {
    pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| Quantity::parse(c["resources"]["requests"][resource].as_str()?).ok())
        .map(|q| q.millis())
        .sum()
}
