//! Completes parts of manifests to whole objects.

use serde_json::{Map, Value, json};

use super::runner::SAMPLE;
use windlass_harness::kit::with;

/// Fleets of each strategy.
fn strategies() -> [Value; 3] {
    [
        json!({"type": "InPlace", "inPlace": {"steps": [1, "100%"]}}),
        json!({"type": "BlueGreen", "blueGreen": {"promotion": "WhenReady"}}),
        json!({"type": "HardFork", "hardFork": {"haltHeight": 8}}),
    ]
}

fn fleet(strategy: &Value, sidecar: &Value) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "fragment"},
        "spec": {"updateStrategy": strategy, "template": {"spec": {
            "image": SAMPLE, "sidecar": sidecar, "podTemplate": {"spec": {"containers": [{"name": "db"}]}},
        }}},
    })
}

fn workers(part: &Map<String, Value>) -> Value {
    let mut spec = json!({
        "connection": {"address": "temporal:7233"},
        "template": {"spec": {"containers": [{"name": "worker", "image": "registry.example/orders:1"}]}},
    });
    spec.as_object_mut().unwrap().extend(part.clone());
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment", "metadata": {"name": "fragment"}, "spec": spec,
    })
}

/// The objects that contain a part: of each group one has to be accepted. Empty if its place is unknown.
pub fn objects(part: &Map<String, Value>) -> Vec<Vec<Value>> {
    let sidecar = json!({"image": "registry.example/windlass:0.1.0"});
    let hook = |hook: &Value| -> Vec<Value> {
        let with = |mut strategy: Value| {
            strategy["hooks"] = json!([hook]);
            fleet(&strategy, &sidecar)
        };
        strategies().map(with).into()
    };
    // Checked before hooks, which workers have too.
    if ["rollout", "connection", "pools", "perVersion"].iter().any(|key| part.contains_key(*key)) {
        return vec![vec![workers(part)]];
    }
    if part.contains_key("gate") {
        return vec![vec![workers(json!({"rollout": part}).as_object().unwrap())]];
    }
    if let Some(hooks) = part.get("hooks").and_then(Value::as_array) {
        // A list may contain hooks of several strategies.
        return hooks.iter().map(hook).collect();
    }
    if let Some(strategy) = part.get("updateStrategy") {
        return vec![vec![fleet(strategy, &sidecar)]];
    }
    if let Some(template) = part.get("podTemplate") {
        let mut whole = fleet(&strategies()[0], &sidecar);
        whole["spec"]["template"]["spec"]["podTemplate"] = template.clone();
        return vec![vec![whole]];
    }
    if let Some(in_place) = part.get("inPlace") {
        return vec![vec![fleet(&json!({"type": "InPlace", "inPlace": in_place}), &sidecar)]];
    }
    if let Some(last) = part.get("last") {
        let strategy = json!({"type": "InPlace", "inPlace": {"order": {"last": last}}});
        return vec![vec![fleet(&strategy, &sidecar)]];
    }
    if part.get("spec").is_some_and(|spec| spec["statefulSets"].is_object()) {
        return vec![vec![json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout", "metadata": {"name": "fragment"},
            "spec": part["spec"],
        })]];
    }
    if part.contains_key("metadata") || part.contains_key("spec") {
        return vec![vec![with(fleet(&strategies()[0], &sidecar), &Value::Object(part.clone()))]];
    }
    if let Some(sidecar) = part.get("sidecar") {
        return vec![vec![fleet(&strategies()[0], sidecar)]];
    }
    Vec::new()
}
