//! Pods.

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::containers::{default_spec, fill, validate_spec};

pub(super) fn default(pod: &mut Value) {
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
    }
    let spec = &mut pod["spec"];
    default_spec(spec);
    fill(spec, "enableServiceLinks", true);
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
        for (name, limit) in limits {
            fill(&mut container["resources"]["requests"], &name, limit);
        }
        if let Some(resources) = container["resources"].as_object_mut() {
            resources.retain(|_, value| !value.is_null());
        }
    }
}

/// Adds what admission adds to every new pod.
pub(super) fn prepare_create(pod: &mut Value) {
    let spec = &mut pod["spec"];
    fill(spec, "serviceAccountName", "default");
    let account = spec["serviceAccountName"].clone();
    fill(spec, "serviceAccount", account);
    fill(spec, "priority", 0);
    fill(spec, "preemptionPolicy", "PreemptLowerPriority");
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|t| t["key"] == key) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    spec["tolerations"] = tolerations.into();
    let class = quality_class(&pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
}

pub(super) fn prepare_update(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy", "serviceAccountName", "serviceAccount"] {
        if pod["spec"].get(field).is_none_or(Value::is_null) && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}

fn quality_class(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for container in spec["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
            any |= request.is_string() || limit.is_string();
            all &= limit.is_string() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn validate(pod: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate_spec(&pod["spec"], "spec", &[]);
    // A template may set what a pod may not.
    for field in ["containers", "initContainers"] {
        for (index, container) in pod["spec"][field].as_array().into_iter().flatten().enumerate() {
            let image = container["image"].as_str().unwrap_or_default();
            if image.trim() != image {
                let at = format!("spec.{field}[{index}].image");
                let why = "must not have leading or trailing whitespace";
                causes.push(Cause::invalid(at, &container["image"], why));
            }
        }
    }
    if let Some(old) = old
        && causes.is_empty()
        && munged(&pod["spec"], &old["spec"]) != old["spec"]
    {
        causes.push(Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    causes
}

/// The new spec with its mutable fields reset to the old ones.
fn munged(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (index, container) in containers.iter_mut().enumerate() {
            container["image"] = old[list][index]["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        match old.get(field) {
            Some(value) => spec[field] = value.clone(),
            None => {
                if let Some(map) = spec.as_object_mut() {
                    map.remove(field);
                }
            }
        }
    }
    spec
}
