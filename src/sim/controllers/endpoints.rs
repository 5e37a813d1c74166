//! The endpoints controller, as far as somebody asks which pods stand behind a Service.

use serde_json::{Value, json};

use super::super::agenda::Job;
use super::super::selector::LabelSelector;
use super::super::store::{Change, Key};
use super::super::world::World;

/// Lists the services whose pods a change concerns.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    let Some(kind) = world.kind("Service") else { return };
    let touched: Vec<Key> = world
        .store
        .list(kind.shelf, &change.key.0)
        .filter(|(_, service)| {
            let Some(selector) = selector_of(&service.value) else { return false };
            [&change.before, &change.after].into_iter().flatten().any(|pod| selector.matches(&pod.value))
        })
        .map(|(key, _)| key.clone())
        .collect();
    for key in touched {
        world.agenda.soon(Job::Endpoints(key));
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
    for ((_, name), pod) in world.store.list(pods.shelf, &key.0) {
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
                "creationTimestamp": world.timestamp(), "labels": service.value["metadata"]["labels"],
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
