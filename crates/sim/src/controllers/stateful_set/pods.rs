//! The pods of a set: adoption, rendering, state.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::super::super::selector::LabelSelector;
use super::super::super::server::WriteOptions;
use super::super::super::store::{Key, Object, controller_of};
use super::super::super::world::World;
use super::{Set, claims};

/// The pods of a set, by name. Adopts matching orphans, and releases pods that no longer match.
pub(super) fn claim(world: &mut World, set: &Set<'_>) -> Vec<Arc<Object>> {
    let Some(kind) = world.kind("Pod") else { return Vec::new() };
    let Some(selector) = LabelSelector::of(&set.spec()["selector"]) else { return Vec::new() };
    let prefix = format!("{}-", set.name);
    let candidates: Vec<(Key, Arc<Object>)> = world
        .store
        .list_named(kind.shelf, set.namespace, &prefix)
        .map(|(key, pod)| (key.clone(), pod.clone()))
        .collect();
    let mut pods = Vec::new();
    for (key, pod) in candidates {
        let member = ordinal(set, &key.1).is_some();
        let fits = member && selector.matches(&pod.value);
        match controller_of(&pod.value) {
            Some(owner) if owner["uid"] == set.uid() && fits => pods.push(pod),
            Some(owner) if owner["uid"] == set.uid() && !pod.is_terminating() => {
                world.put(&kind, key, let_go(set, &pod));
            }
            None if fits && !pod.is_terminating() && !set.object.is_terminating() => {
                pods.push(world.put(&kind, key, set.adopted(&pod)));
            }
            _ => {}
        }
    }
    pods
}

/// A pod without its owner reference.
fn let_go(set: &Set<'_>, pod: &Object) -> Value {
    let mut value = pod.value.clone();
    if let Some(references) = value["metadata"]["ownerReferences"].as_array_mut() {
        references.retain(|r| r["uid"] != set.uid());
        if references.is_empty()
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
    }
    value
}

/// The ordinal in a pod's name, if the name belongs to this set.
pub(super) fn ordinal(set: &Set<'_>, name: &str) -> Option<i64> {
    let (parent, number) = name.rsplit_once('-')?;
    (parent == set.name && number.bytes().all(|b| b.is_ascii_digit())).then(|| number.parse().ok())?
}

/// Renders a pod.
pub(super) fn render(set: &Set<'_>, template: &Value, revision: &str, ordinal: i64) -> Value {
    let name = set.pod_name(ordinal);
    let mut labels: Map<String, Value> =
        template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone().into());
    labels.insert("apps.kubernetes.io/pod-index".into(), ordinal.to_string().into());
    labels.insert("controller-revision-hash".into(), revision.into());
    let mut metadata = json!({
        "name": name, "namespace": set.namespace, "generateName": format!("{}-", set.name),
        "labels": labels, "ownerReferences": [set.reference()],
    });
    for field in ["annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let mut spec = template["spec"].clone();
    spec["hostname"] = name.into();
    if let Some(service) = set.spec()["serviceName"].as_str() {
        spec["subdomain"] = service.into();
    }
    let claims = claims::of(set, ordinal);
    if !claims.is_empty() {
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|(name, claim)| {
                json!({"name": name, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}})
            })
            .collect();
        let own = spec["volumes"].as_array().cloned().unwrap_or_default();
        volumes
            .extend(own.into_iter().filter(|v| !claims.iter().any(|(name, _)| v["name"] == name.as_str())));
        spec["volumes"] = volumes.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Creates a pod and its claims.
pub(super) fn create(
    world: &mut World,
    set: &Set<'_>,
    ordinal: i64,
    pod: Value,
) -> Result<Arc<Object>, String> {
    let failed = |why: &str| {
        format!("create Pod {} in StatefulSet {} failed error: {why}", set.pod_name(ordinal), set.name)
    };
    claims::create(world, set, ordinal).map_err(|why| failed(&why))?;
    let Some(kind) = world.kind("Pod") else { return Err(String::new()) };
    let written = world
        .create(&kind, set.namespace, pod, &WriteOptions::default())
        .map_err(|refusal| failed(&refusal.message))?;
    claims::retain(world, set, ordinal, &written.object);
    Ok(written.object)
}

/// The revision of a pod.
pub(super) fn revision_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap_or_default()
}

pub(super) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == "Ready")
        .filter(|c| c["status"] == "True")
}

pub(super) fn is_ready(pod: &Value) -> bool {
    phase(pod) == "Running" && ready_condition(pod).is_some()
}

/// True if Ready for long enough. (The real controller does not check the phase either.)
pub(super) fn is_available(pod: &Value, min_ready_seconds: i64, now: DateTime<Utc>) -> bool {
    let Some(condition) = ready_condition(pod) else { return false };
    if min_ready_seconds == 0 {
        return true;
    }
    let since = condition["lastTransitionTime"].as_str().and_then(|t| DateTime::parse_from_rfc3339(t).ok());
    since.is_some_and(|since| (now - since.with_timezone(&Utc)).num_seconds() >= min_ready_seconds)
}
