//! What all comes to: whether it is well, and what is left, without what differs between any two runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::deeds::{Deed, Illness};
use crate::scenario::NAMESPACE;
use crate::world::World;

/// What is left at the end, by kind and name.
pub type End = BTreeMap<String, Value>;

/// A condition's status, reason and message.
pub fn condition(object: &Value, type_: &str) -> (String, String, String) {
    let list = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_);
    let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn is_node_well(node: &Value) -> bool {
    is_observed(node)
        && node["metadata"]["deletionTimestamp"].is_null()
        && node["status"]["phase"] == "Running"
        && condition(node, "Ready").0 == "True"
        && condition(node, "Stalled").0 == "False"
        && node["status"]["plan"]["state"] != "Active"
        && (node["spec"]["grantedHash"].is_null()
            || node["spec"]["grantedHash"] == ""
            || node["spec"]["grantedHash"] == node["status"]["podTemplateHash"])
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |o| o["kind"] == kind && o["metadata"]["namespace"] == NAMESPACE)
}

/// Whether the scenario's object says that it is done, and its nodes are.
pub fn is_well(world: &World) -> bool {
    let Some(object) = world.object() else { return false };
    if world.scenario.is_alone() {
        return is_node_well(&object);
    }
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or_default();
    let settled = is_observed(&object)
        && object["status"]["replicas"].as_i64().unwrap_or_default() == replicas
        && condition(&object, "Stalled").0 == "False"
        && condition(&object, "Reconciling").0 == "False"
        && object["status"]["plan"]["state"] != "Active";
    if !settled || (replicas > 0 && !condition(&object, "UpToDate").1.eq("Applied")) {
        return false;
    }
    let objects = world.cluster.snapshot_of(NAMESPACE, &["StatefulNode"]);
    let mut count = 0;
    of_kind(&objects, "StatefulNode").all(|node| {
        count += 1;
        is_node_well(node)
    }) && count == replicas
}

/// Whether nothing is left of what was deleted but what is to stay.
pub fn is_gone(world: &World, deed: Deed) -> bool {
    let kinds = ["NodeDeployment", "StatefulNode", "StatefulSet", "Pod", "Service"];
    let gone = world.cluster.snapshot_of(NAMESPACE, &kinds).is_empty();
    gone && (deed != Deed::DeleteNamespace || world.cluster.get("v1", "Namespace", "", NAMESPACE).is_none())
}

/// What is stored now, without times, UIDs and other things that no two runs have in common.
pub fn end_of(world: &World) -> End {
    let mut end = End::new();
    let kinds = ["NodeDeployment", "StatefulNode", "StatefulSet", "Pod", "Service", "PersistentVolumeClaim"];
    for object in world.cluster.snapshot_of(NAMESPACE, &kinds) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let status = &object["status"];
        let kept = match kind {
            "NodeDeployment" => json!({
                "spec": object["spec"],
                "phase": status["phase"],
                "counts": [status["replicas"], status["readyReplicas"], status["updatedReplicas"],
                    status["availableReplicas"]],
                "hashes": [status["requestedRolloutHash"], status["lastCompletedRolloutHash"]],
                "conditions": conditions(&object, &["Ready", "UpToDate", "Stalled", "Reconciling"]),
            }),
            "StatefulNode" => json!({
                "spec": without(&object["spec"], &["grantID"]),
                "phase": status["phase"],
                "runs": [status["currentImage"], status["podTemplateHash"]],
                "conditions": conditions(&object, &["Ready", "SidecarReady", "Stalled", "Reconciling"]),
            }),
            "StatefulSet" => json!({"spec": object["spec"], "ready": status["readyReplicas"]}),
            "Pod" => json!({
                "containers": object["spec"]["containers"], "volumes": object["spec"]["volumes"],
                "inits": object["spec"]["initContainers"],
                "annotations": object["metadata"]["annotations"],
                "ready": condition(&object, "Ready").0,
            }),
            "Service" => json!({"spec": without(&object["spec"], &["clusterIP", "clusterIPs"])}),
            "PersistentVolumeClaim" => json!({"spec": without(&object["spec"], &["volumeName"])}),
            _ => continue,
        };
        let mut kept = kept;
        if kind != "NodeDeployment" {
            kept["labels"] = without(
                &object["metadata"]["labels"],
                &["controller-revision-hash", "apps.kubernetes.io/pod-index"],
            );
        }
        kept["owners"] = owners(&object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        end.insert(format!("{kind} {name}"), kept);
    }
    end
}

fn conditions(object: &Value, types: &[&str]) -> Value {
    let one = |type_: &&str| {
        let (status, reason, _) = condition(object, type_);
        format!("{type_}={status}/{reason}")
    };
    types.iter().map(one).collect()
}

fn without(value: &Value, fields: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        for field in fields {
            map.remove(*field);
        }
    }
    value
}

fn owners(object: &Value) -> Value {
    let list = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|o| json!([o["kind"], o["name"]])).collect()
}

/// How two ends differ, in a few lines.
pub fn difference(wanted: &End, found: &End) -> Vec<String> {
    let mut lines = Vec::new();
    for name in wanted.keys().chain(found.keys().filter(|k| !wanted.contains_key(*k))) {
        match (wanted.get(name), found.get(name)) {
            (Some(_), None) => lines.push(format!("{name} is missing")),
            (None, Some(_)) => lines.push(format!("{name} is there and should not be")),
            (Some(left), Some(right)) => compare(name, left, right, &mut lines),
            (None, None) => {}
        }
    }
    lines
}

fn compare(path: &str, left: &Value, right: &Value, lines: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            for key in l.keys().chain(r.keys().filter(|k| !l.contains_key(*k))) {
                compare(&format!("{path}.{key}"), &left[key], &right[key], lines);
            }
        }
        _ if left == right => {}
        _ => lines.push(format!("{path} is {right} and should be {left}")),
    }
}

/// Whether what cannot go on says so: a condition, a reason, a sentence that names the node and the cause.
pub fn says_so(world: &World, illness: Illness, node: &str) -> Result<(), String> {
    let Some(object) = world.object() else { return Err("oracle 5: the object is gone".to_owned()) };
    let said: Vec<(String, String, String)> =
        ["Stalled", "Ready", "UpToDate"].iter().map(|type_| condition(&object, type_)).collect();
    let rolling = !object["status"]["rollout"].is_null();
    let stalls = |(status, reason, _): &(String, String, String)| status == "True" && reason == "NoProgress";
    if (rolling || world.scenario.is_alone()) && !stalls(&said[0]) {
        return Err(format!("oracle 5: not stalled after its deadline: {}", summary(world)));
    }
    let of_a_node = illness.is_of_a_node() && !world.scenario.is_alone();
    let names = |text: &str| if of_a_node { text.contains(node) } else { text.contains("db-") };
    let explains = |(status, _, message): &(String, String, String)| {
        !status.is_empty() && !message.is_empty() && (world.scenario.is_alone() || names(message))
    };
    if said.iter().any(explains) {
        return Ok(());
    }
    Err(format!("oracle 5: no condition names {node} and the cause: {}", summary(world)))
}

/// What there is to see of the scenario's object, in a few lines.
pub fn summary(world: &World) -> String {
    let Some(object) = world.object() else { return "the object is gone".to_owned() };
    let mut lines = Vec::new();
    let nodes = world.cluster.snapshot_of(NAMESPACE, &["StatefulNode"]);
    for object in std::iter::once(&object).chain(of_kind(&nodes, "StatefulNode")) {
        let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said: Vec<String> = list
            .iter()
            .map(|c| {
                let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
                format!("{}={}/{} {:?}", text("type"), text("status"), text("reason"), text("message"))
            })
            .collect();
        lines.push(format!(
            "{} {}: {} plan {} {} {}",
            object["kind"].as_str().unwrap_or_default(),
            object["metadata"]["name"].as_str().unwrap_or_default(),
            object["status"]["phase"],
            object["status"]["plan"]["recipe"],
            object["status"]["plan"]["state"],
            said.join(", ")
        ));
    }
    lines.join("\n    ")
}
