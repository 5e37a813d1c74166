//! The endpoints controller, to the extent that clients read endpoints.

use serde_json::{Value, json};

use super::super::agenda::Job;
use super::super::selector::LabelSelector;
use super::super::store::{Change, Key};
use super::super::world::World;
use super::index;

/// Queues a changed Service, and maintains the index by which pods find it.
pub(crate) fn note_service(world: &mut World, change: &Change) {
    for (object, present) in [(&change.before, false), (&change.after, true)] {
        let Some((label, value)) = object.as_ref().and_then(|service| first_label(&service.value)) else {
            continue;
        };
        index(&mut world.selecting, (change.key.0.clone(), label, value), &change.key.1, present);
    }
    world.agenda.soon(Job::Endpoints(change.key.clone()));
}

fn first_label(service: &Value) -> Option<(String, String)> {
    let (label, value) = service["spec"]["selector"].as_object()?.iter().next()?;
    Some((label.clone(), value.as_str()?.to_owned()))
}

/// Queues the Services of a changed pod, and maintains the index by which they find it.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    let (namespace, pod_name) = &change.key;
    for (pod, present) in [(&change.before, false), (&change.after, true)] {
        let Some(pod) = pod else { continue };
        for (label, value) in pod.value["metadata"]["labels"].as_object().into_iter().flatten() {
            let key = (namespace.clone(), label.clone(), value.as_str().unwrap_or_default().to_owned());
            for name in world.selecting.get(&key).into_iter().flatten() {
                world.agenda.soon(Job::Endpoints((namespace.clone(), name.clone())));
            }
            index(&mut world.labelled, key, pod_name, present);
        }
    }
}

fn selector_of(service: &Value) -> Option<LabelSelector> {
    let labels = service["spec"]["selector"].as_object().filter(|map| !map.is_empty())?;
    LabelSelector::of(&json!({"matchLabels": labels}))
}

/// Writes a service's endpoints.
pub(crate) fn step(world: &mut World, key: &Key) {
    let (Some(services), Some(kind), Some(pods)) =
        (world.kind("Service"), world.kind("Endpoints"), world.kind("Pod"))
    else {
        return;
    };
    let Some(service) = world.store.get(services.shelf, key).cloned() else {
        world.remove(&kind, key);
        return;
    };
    let Some(selector) = selector_of(&service.value) else { return };
    let unready_too = service.value["spec"]["publishNotReadyAddresses"] == true;
    let (mut ready, mut unready) = (Vec::new(), Vec::new());
    let Some((label, value)) = first_label(&service.value) else { return };
    for name in world.labelled.get(&(key.0.clone(), label, value)).into_iter().flatten() {
        let Some(pod) = world.store.get(pods.shelf, &(key.0.clone(), name.clone())) else { continue };
        let Some(ip) = pod.value["status"]["podIP"].as_str() else { continue };
        if !selector.matches(&pod.value) || (pod.is_terminating() && !unready_too) {
            continue;
        }
        let address = json!({
            "ip": ip, "nodeName": pod.value["spec"]["nodeName"],
            "targetRef": {"kind": "Pod", "namespace": key.0, "name": name, "uid": pod.uid()},
        });
        if unready_too || is_ready(&pod.value) { ready.push(address) } else { unready.push(address) }
    }
    let ports: Vec<Value> = service.value["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| {
            let mut entry = json!({"port": port["targetPort"], "protocol": port["protocol"]});
            if port["name"].is_string() {
                entry["name"] = port["name"].clone();
            }
            entry
        })
        .collect();
    let mut subset = json!({});
    for (field, list) in [("addresses", ready), ("notReadyAddresses", unready), ("ports", ports)] {
        if !list.is_empty() {
            subset[field] = list.into();
        }
    }
    let empty = subset.get("addresses").is_none() && subset.get("notReadyAddresses").is_none();
    let old = world.store.get(kind.shelf, key).cloned();
    let mut value = match &old {
        Some(old) => old.value.clone(),
        None => json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": key.1, "namespace": key.0, "uid": world.random.uid(),
                "creationTimestamp": world.timestamp(),
            },
        }),
    };
    if empty {
        value.as_object_mut().map(|map| map.remove("subsets"));
    } else {
        value["subsets"] = json!([subset]);
    }
    if old.is_none_or(|old| old.value != value) {
        world.put(&kind, key.clone(), value);
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}
