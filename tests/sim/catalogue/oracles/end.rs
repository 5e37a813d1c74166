//! The end of a run: whether everything is well, and what is left, without what differs between runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass::api::SetName;

use super::held;
use crate::catalogue::deeds::{Deed, Illness};
use crate::catalogue::platform;
use crate::catalogue::scenario::NAMESPACE;
use crate::catalogue::world::World;

/// The remaining objects, by kind and name.
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

/// True if the scenario's object is up to date, and its nodes are.
pub fn is_well(world: &World) -> bool {
    let Some(object) = world.object() else { return false };
    if world.scenario.is_alone() {
        return is_node_well(&object);
    }
    if world.scenario.is_held() {
        return held::is_well(world, &object);
    }
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or_default();
    let reason = condition(&object, "UpToDate").1;
    let taken_back = reason == "RolledBack" && world.scenario.ending() == reason;
    if !is_settled(&object, taken_back) || (replicas > 0 && !taken_back && reason != "Applied") {
        return false;
    }
    let objects = world.cluster.snapshot_of(NAMESPACE, &["StatefulNode"]);
    are_nodes_well(of_kind(&objects, "StatefulNode"), replicas)
}

fn is_settled(fleet: &Value, taken_back: bool) -> bool {
    let replicas = fleet["spec"]["replicas"].as_i64().unwrap_or_default();
    is_observed(fleet)
        && fleet["status"]["replicas"].as_i64().unwrap_or_default() == replicas
        && (taken_back || condition(fleet, "Stalled").0 == "False")
        && condition(fleet, "Reconciling").0 == "False"
        && fleet["status"]["rollout"].is_null()
        // A node that was Ready for minReadySeconds is still to be counted.
        && fleet["status"]["availableReplicas"] == fleet["status"]["readyReplicas"]
        // Sets that are retired by time are still removed after the rollout; that write is not one at rest.
        && fleet["status"]["retiring"].as_array().is_none_or(Vec::is_empty)
        && fleet["status"]["plan"]["state"] != "Active"
        && (replicas == 0 || is_restarted(fleet))
        && is_released(fleet)
}

/// True if the status says `Retain` where the spec does, and does not where the spec does not.
fn is_released(fleet: &Value) -> bool {
    let (spec, status) = (&fleet["spec"], &fleet["status"]);
    let asked = [&spec["deletionPolicy"], &spec["template"]["spec"]["volumeClaimRetention"]];
    let said = [&status["deletionPolicy"], &status["volumeClaimRetention"]];
    // A status at rest is not written only to say what is the default.
    asked
        .iter()
        .zip(said)
        .all(|(asked, said)| asked.is_null() || (**asked == "Retain") == (*said == "Retain"))
}

fn are_nodes_well<'a>(mut nodes: impl Iterator<Item = &'a Value>, replicas: i64) -> bool {
    let mut count = 0;
    nodes.all(|node| {
        count += 1;
        is_node_well(node)
    }) && count == replicas
}

/// True if the last requested restart was obeyed.
fn is_restarted(object: &Value) -> bool {
    let asked = &object["metadata"]["annotations"]["windlass.dev/restartedAt"];
    asked.is_null() || *asked == object["status"]["restartedAt"]
}

/// The active set.
pub fn active_set(world: &World) -> String {
    let object = world.object().unwrap_or_default();
    object["status"]["activeSet"].as_str().unwrap_or_default().to_owned()
}

/// True if nothing is left of the deleted object except what is retained.
pub fn is_gone(world: &World, deed: Deed) -> bool {
    if world.scenario.is_held() && deed != Deed::DeleteNamespace {
        return held::is_released(world);
    }
    let kinds = ["NodeDeployment", "StatefulNode", "StatefulSetRollout", "StatefulSet", "Pod", "Service"];
    let gone = world.cluster.snapshot_of(NAMESPACE, &kinds).is_empty();
    gone && (deed != Deed::DeleteNamespace || world.cluster.get("v1", "Namespace", "", NAMESPACE).is_none())
}

/// The stored objects, without times, UIDs and other things that differ between runs.
pub fn end_of(world: &World) -> End {
    let kinds = [
        "NodeDeployment",
        "StatefulNode",
        "StatefulSetRollout",
        "StatefulSet",
        "Pod",
        "Service",
        "PersistentVolumeClaim",
    ];
    end_of_these(world.cluster.snapshot_of(NAMESPACE, &kinds))
}

/// What these objects come to.
pub fn end_of_these(objects: Vec<Value>) -> End {
    let mut end = End::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        // Pods of Jobs have random names, and exist as long as their Job.
        if object["metadata"]["ownerReferences"][0]["kind"] == "Job" {
            continue;
        }
        let status = &object["status"];
        let kept = match kind {
            "NodeDeployment" => json!({
                "spec": without_persons(&object["spec"]),
                "phase": status["phase"],
                "counts": (["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"]
                    .map(|count| status[count].as_i64().unwrap_or_default())),
                "hashes": [status["requestedRolloutHash"], status["lastCompletedRolloutHash"]],
                "conditions": conditions(&object, &["Ready", "UpToDate", "Stalled", "Reconciling"]),
            }),
            "StatefulNode" => json!({
                "spec": without_nothing(without(&object["spec"], &["grantID", "move"])),
                "phase": status["phase"],
                "runs": [status["currentImage"], status["podTemplateHash"]],
                "conditions": conditions(&object, &["Ready", "SidecarReady", "Stalled", "Reconciling"]),
            }),
            "StatefulSetRollout" => json!({
                "spec": object["spec"],
                "phase": status["phase"],
                "counts": (["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"]
                    .map(|count| status[count].as_i64().unwrap_or_default())),
                "conditions": conditions(&object, &["Held", "Ready", "UpToDate", "Stalled", "Reconciling"]),
            }),
            "StatefulSet" => json!({
                "spec": object["spec"],
                "ready": status["readyReplicas"],
                "strategy": held::before(&object),
            }),
            "Pod" => json!({
                "containers": object["spec"]["containers"], "volumes": object["spec"]["volumes"],
                "inits": object["spec"]["initContainers"],
                "annotations": object["metadata"]["annotations"],
                "ready": condition(&object, "Ready").0,
                "owned": object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty()),
            }),
            "Service" => json!({"spec": without(&object["spec"], &["clusterIP", "clusterIPs"])}),
            "PersistentVolumeClaim" => json!({"spec": without(&object["spec"], &["volumeName"])}),
            _ => continue,
        };
        let mut kept = kept;
        if !matches!(kind, "NodeDeployment" | "StatefulSetRollout") {
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

/// Promotions and partitions are set by people, who may not have had to.
fn without_persons(spec: &Value) -> Value {
    let mut spec = without(spec, &["forcePromote"]);
    if let Some(in_place) = spec["updateStrategy"]["inPlace"].as_object_mut() {
        in_place.remove("partition");
    }
    spec
}

/// A request to a sidecar that is over is written as zero values, which equals one that was never written.
fn without_nothing(mut spec: Value) -> Value {
    if let Some(map) = spec.as_object_mut() {
        let asks = ["watchSidecar", "haltHeight", "haltTaskID"];
        let is_nothing = |value: &Value| *value == false || *value == 0 || *value == "";
        map.retain(|key, value| !asks.contains(&key.as_str()) || !is_nothing(value));
    }
    spec
}

fn owners(object: &Value) -> Value {
    let list = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A pod whose StatefulSet was replaced keeps its node as an owner, until the pod is replaced too.
    let is_left = |o: &&Value| object["kind"] != "Pod" || o["kind"] != "StatefulNode";
    list.iter().filter(is_left).map(|o| json!([o["kind"], o["name"]])).collect()
}

/// An end with the nodes of the active set named by ordinal, and without claims of other sets. An action in the
/// middle may create another set, whose name differs: only the serving nodes have to match. Another oracle checks
/// that no claim is deleted.
pub fn by_role(end: &End, active_set: &str) -> End {
    let is_left = |key: &str| {
        let name = key.strip_prefix("PersistentVolumeClaim ");
        name.is_some_and(|name| role(name, active_set).is_none())
    };
    let named = |key: &str| {
        let (kind, name) = key.split_once(' ').unwrap_or(("", key));
        role(name, active_set).map_or(key.to_owned(), |role| format!("{kind} {role}"))
    };
    let kept = end.iter().filter(|(key, _)| !is_left(key));
    kept.map(|(key, value)| (named(key), roles(value, active_set))).collect()
}

/// True if a claim belongs to a set that is not active and was not the first.
pub fn never_served(claim: &str, active_set: &str) -> bool {
    let node = claim.strip_prefix("data-").and_then(|pod| pod.strip_suffix("-0"));
    let place = node.and_then(|node| windlass::api::names::place_of("db", node));
    place.is_some_and(|(set, _)| set != active_set && set != SetName::FIRST)
}

/// The name of an object of the active set by ordinal.
fn role(name: &str, active_set: &str) -> Option<String> {
    let place = |node: &str| {
        let (set, ordinal) = windlass::api::names::place_of("db", node)?;
        (set == active_set).then(|| format!("db-<serving>-{ordinal}"))
    };
    let of_pod = |pod: &str| Some(format!("{}-0", place(pod.strip_suffix("-0")?)?));
    place(name)
        .or_else(|| of_pod(name))
        .or_else(|| Some(format!("data-{}", of_pod(name.strip_prefix("data-")?)?)))
}

fn roles(value: &Value, active_set: &str) -> Value {
    match value {
        Value::String(text) if text == active_set => "<serving>".into(),
        Value::String(text) => role(text, active_set).unwrap_or_else(|| text.clone()).into(),
        Value::Array(list) => list.iter().map(|item| roles(item, active_set)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (key.clone(), roles(item, active_set)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// An end without what admission added to StatefulSets and pods or rewrote there. Nodes and fleets are not affected.
pub fn without_admission(end: &End) -> End {
    let is_rewritten = |key: &str| key.starts_with("StatefulSet ") || key.starts_with("Pod ");
    let own = |(key, value): (&String, &Value)| {
        let value = if is_rewritten(key) { platform::without_admission(value) } else { value.clone() };
        (key.clone(), value)
    };
    end.iter().map(own).collect()
}

/// The difference of two ends, in a few lines.
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

/// Checks that a blocked rollout reports it: a condition with a reason and a message that names the node and the
/// cause.
pub fn says_so(world: &World, illness: Illness, node: &str) -> Result<(), String> {
    let Some(object) = world.object() else { return Err("oracle 5: the object is gone".to_owned()) };
    if matches!(illness, Illness::Peers(_)) {
        return hook_says_so(world, &object);
    }
    let said: Vec<(String, String, String)> =
        ["Stalled", "Ready", "UpToDate"].iter().map(|type_| condition(&object, type_)).collect();
    let rolling = !object["status"]["rollout"].is_null();
    let stalls = |(status, reason, _): &(String, String, String)| status == "True" && reason == "NoProgress";
    if (rolling || world.scenario.is_alone()) && !stalls(&said[0]) {
        return Err(format!("oracle 5: not stalled after its deadline: {}", summary(world)));
    }
    let of_a_node = illness.is_of_a_node() && !world.scenario.is_alone();
    let subjects = world.scenario.subjects();
    let names = |text: &str| {
        if of_a_node { text.contains(node) } else { subjects.iter().any(|name| text.contains(name)) }
    };
    let explains = |(status, _, message): &(String, String, String)| {
        let says = !message.is_empty() && message.contains(illness.cause());
        !status.is_empty() && says && (world.scenario.is_alone() || names(message))
    };
    if said.iter().any(explains) {
        return Ok(());
    }
    Err(format!("oracle 5: no condition names {node} and the cause: {}", summary(world)))
}

/// A hook with a failing peer reports its last answer. Its time is not the rollout's.
fn hook_says_so(world: &World, object: &Value) -> Result<(), String> {
    let nodes = world.cluster.snapshot_of(NAMESPACE, &["StatefulNode"]);
    let plans = std::iter::once(object).chain(of_kind(&nodes, "StatefulNode")).map(|o| &o["status"]["plan"]);
    let mut tasks = plans.filter_map(|plan| plan["tasks"].as_array()).flatten();
    let is_told = |task: &Value| {
        let asks = task["type"] == "call-http" || task["type"] == "check-query";
        let said = task["message"].as_str().unwrap_or_default();
        asks && task["state"] == "Running"
            && (said.contains("answer") || said.contains("cannot be evaluated"))
    };
    if tasks.any(is_told) {
        return Ok(());
    }
    Err(format!("oracle 5: no hook says what was heard of its peer: {}", summary(world)))
}

/// A summary of the scenario's object, in a few lines.
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
        let plan = &object["status"]["plan"];
        let mut tasks = plan["tasks"].as_array().into_iter().flatten();
        let current = tasks.find(|task| task["state"] == "Pending" || task["state"] == "Running");
        let task = current.map(|task| format!("at {} {}, ", task["type"], task["message"]));
        lines.push(format!(
            "{} {}: {} plan {} {} {}{}",
            object["kind"].as_str().unwrap_or_default(),
            object["metadata"]["name"].as_str().unwrap_or_default(),
            object["status"]["phase"],
            plan["recipe"],
            plan["state"],
            task.unwrap_or_default(),
            said.join(", ")
        ));
        for update in object["status"]["nodes"].as_array().into_iter().flatten() {
            lines.push(format!("{} {}: {}", update["name"], update["podUID"], update["plan"]));
        }
    }
    lines.join("\n    ")
}
