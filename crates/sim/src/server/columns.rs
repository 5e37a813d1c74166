//! The table columns of the built-in kinds, as in the real server.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::cell::{column, number, or, since, text};
use super::pod_columns;

/// The description of the first column in every table.
pub(crate) const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// The columns of a kind: names, with types other than `string`; those after `|` only with `-o wide`.
fn titles(kind: &str) -> &'static str {
    match kind {
        "Pod" => "Name,Ready,Status,Restarts,Age|IP,Node,Nominated Node,Readiness Gates",
        "StatefulSet" => "Name,Ready,Age|Containers,Images",
        "Service" => "Name,Type,Cluster-IP,External-IP,Port(s),Age|Selector",
        "Node" => {
            "Name,Status,Roles,Age,Version|Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime"
        }
        "Event" => "Last Seen,Type,Reason,Object|Subobject,Source|-Message|First Seen,Count,Name",
        "Namespace" => "Name,Status,Age",
        "PersistentVolumeClaim" => {
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age|VolumeMode"
        }
        "PersistentVolume" => {
            "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age|VolumeMode"
        }
        "ConfigMap" => "Name,Data,Age",
        "Secret" => "Name,Type,Data,Age",
        "ServiceAccount" => "Name,Age",
        "Endpoints" => "Name,Endpoints,Age",
        "ControllerRevision" => "Name,Controller,Revision,Age",
        "Lease" => "Name,Holder,Age",
        "StorageClass" => "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        _ => "Name,Created At",
    }
}

/// The columns of a built-in kind.
pub(crate) fn definitions(kind: &str) -> Vec<Value> {
    let mut list = Vec::new();
    for (index, part) in titles(kind).split('|').enumerate() {
        // One kind has wide columns between the others.
        let (part, wide) = part.strip_prefix('-').map_or((part, index % 2 == 1), |part| (part, false));
        for name in part.split(',') {
            let format = if name == "Name" { "name" } else { "" };
            let ty = if name == "Created At" { "date" } else { "string" };
            list.push(column(name, ty, format, i64::from(wide), ""));
        }
    }
    list
}

/// The cells of a built-in object.
pub(crate) fn cells(kind: &str, o: &Value, now: DateTime<Utc>) -> Vec<Value> {
    let name = o["metadata"]["name"].clone();
    let age: Value = since(&o["metadata"]["creationTimestamp"], now).into();
    let (spec, status) = (&o["spec"], &o["status"]);
    match kind {
        "Pod" => pod_columns::cells(o, now),
        "StatefulSet" => {
            let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
            let containers = &spec["template"]["spec"]["containers"];
            vec![name, ready.into(), age, each(containers, "name").into(), each(containers, "image").into()]
        }
        "Service" => service(o, name, age),
        "Node" => node(o, name, age),
        "Event" => event(o, now),
        "Namespace" => vec![name, status["phase"].clone(), age],
        "PersistentVolumeClaim" => claim(o, name, age),
        "PersistentVolume" => volume(o, name, age),
        "ConfigMap" => {
            let data = count(&o["data"]) + count(&o["binaryData"]);
            vec![name, data.into(), age]
        }
        "Secret" => vec![name, o["type"].clone(), count(&o["data"]).into(), age],
        "ServiceAccount" => vec![name, age],
        "Endpoints" => vec![name, addresses(&o["subsets"]).into(), age],
        "ControllerRevision" => {
            vec![name, controller(&o["metadata"]).into(), number(&o["revision"]).into(), age]
        }
        "Lease" => vec![name, text(&spec["holderIdentity"]).into(), age],
        "StorageClass" => class(o, age),
        _ => vec![name, o["metadata"]["creationTimestamp"].clone()],
    }
}

fn service(o: &Value, name: Value, age: Value) -> Vec<Value> {
    let spec = &o["spec"];
    let port = |port: &Value| {
        let node = number(&port["nodePort"]);
        let node = if node == 0 { String::new() } else { format!(":{node}") };
        format!("{}{node}/{}", number(&port["port"]), text(&port["protocol"]))
    };
    vec![
        name,
        spec["type"].clone(),
        or(text(&spec["clusterIP"]), "<none>").into(),
        or(&joined(&spec["externalIPs"], ","), "<none>").into(),
        or(&list(&spec["ports"], port).join(","), "<none>").into(),
        age,
        labels(&spec["selector"]).into(),
    ]
}

fn node(o: &Value, name: Value, age: Value) -> Vec<Value> {
    let (info, status) = (&o["status"]["nodeInfo"], &o["status"]);
    let ready = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut state = match ready.map(|c| text(&c["status"])) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if o["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = status["addresses"].as_array().into_iter().flatten().find(|a| a["type"] == kind);
        found.map_or("<none>".to_owned(), |a| text(&a["address"]).to_owned())
    };
    let known = |field: &str| Value::from(or(text(&info[field]), "<unknown>"));
    let roles = o["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<&str> =
        roles.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    vec![
        name,
        state.into(),
        or(&roles.join(","), "<none>").into(),
        age,
        text(&info["kubeletVersion"]).into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

/// An event of either API group.
fn event(o: &Value, now: DateTime<Utc>) -> Vec<Value> {
    let either = |one: &str, other: &str| if o[one].is_null() { o[other].clone() } else { o[one].clone() };
    let about = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");
    let (first, last) = (
        either("firstTimestamp", "deprecatedFirstTimestamp"),
        either("lastTimestamp", "deprecatedLastTimestamp"),
    );
    let first = if first.is_null() { o["eventTime"].clone() } else { first };
    let last = if last.is_null() { first.clone() } else { last };
    let (last, count) = match &o["series"] {
        Value::Null => (last, number(&either("count", "deprecatedCount")).max(1)),
        series => (series["lastObservedTime"].clone(), number(&series["count"])),
    };
    let kind = text(&about["kind"]).to_lowercase();
    let target =
        if text(&about["name"]).is_empty() { kind } else { format!("{kind}/{}", text(&about["name"])) };
    let reporting = either("reportingComponent", "reportingController");
    let component = or(text(&source["component"]), text(&reporting));
    let host = or(text(&source["host"]), text(&o["reportingInstance"]));
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    vec![
        since(&last, now).into(),
        o["type"].clone(),
        o["reason"].clone(),
        target.into(),
        text(&about["fieldPath"]).into(),
        source.into(),
        text(&either("message", "note")).trim().into(),
        since(&first, now).into(),
        count.into(),
        o["metadata"]["name"].clone(),
    ]
}

fn claim(o: &Value, name: Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let going = o["metadata"]["deletionTimestamp"].is_string();
    let phase = if going { "Terminating" } else { text(&status["phase"]) };
    let bound = !text(&spec["volumeName"]).is_empty();
    let (capacity, modes) = if bound {
        (text(&status["capacity"]["storage"]), modes(&status["accessModes"]))
    } else {
        ("", String::new())
    };
    vec![
        name,
        phase.into(),
        text(&spec["volumeName"]).into(),
        capacity.into(),
        modes.into(),
        text(&spec["storageClassName"]).into(),
        or(text(&spec["volumeAttributesClassName"]), "<unset>").into(),
        age,
        or(text(&spec["volumeMode"]), "<unset>").into(),
    ]
}

fn volume(o: &Value, name: Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let going = o["metadata"]["deletionTimestamp"].is_string();
    let claim = &spec["claimRef"];
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    };
    vec![
        name,
        text(&spec["capacity"]["storage"]).into(),
        modes(&spec["accessModes"]).into(),
        spec["persistentVolumeReclaimPolicy"].clone(),
        if going { "Terminating" } else { text(&status["phase"]) }.into(),
        claim.into(),
        text(&spec["storageClassName"]).into(),
        or(text(&spec["volumeAttributesClassName"]), "<unset>").into(),
        text(&status["reason"]).into(),
        age,
        or(text(&spec["volumeMode"]), "<unset>").into(),
    ]
}

fn class(o: &Value, age: Value) -> Vec<Value> {
    let is_default = o["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let name = format!("{}{}", text(&o["metadata"]["name"]), if is_default { " (default)" } else { "" });
    vec![
        name.into(),
        o["provisioner"].clone(),
        or(text(&o["reclaimPolicy"]), "Delete").into(),
        or(text(&o["volumeBindingMode"]), "Immediate").into(),
        (o["allowVolumeExpansion"] == true).to_string().into(),
        age,
    ]
}

fn modes(modes: &Value) -> String {
    let short = |mode: &Value| match text(mode) {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    };
    list(modes, short).join(",")
}

/// The first three addresses with their ports, and the number of others.
fn addresses(subsets: &Value) -> String {
    let mut all = Vec::new();
    for subset in subsets.as_array().into_iter().flatten() {
        let hosts: Vec<&str> =
            subset["addresses"].as_array().into_iter().flatten().map(|a| text(&a["ip"])).collect();
        let ports: Vec<i64> =
            subset["ports"].as_array().into_iter().flatten().map(|p| number(&p["port"])).collect();
        if ports.is_empty() {
            all.extend(hosts.iter().map(|&host| host.to_owned()));
        }
        for port in ports {
            all.extend(hosts.iter().map(|host| format!("{host}:{port}")));
        }
    }
    let more = all.len().saturating_sub(3);
    all.truncate(3);
    let shown = or(&all.join(","), "<none>");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

fn controller(metadata: &Value) -> String {
    let found = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|owner| owner["controller"] == true);
    found.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            format!("{}{dot}{group}/{}", text(&owner["kind"]).to_lowercase(), text(&owner["name"]))
        },
    )
}

fn labels(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    or(&pairs.map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>().join(","), "<none>")
}

fn list(items: &Value, show: impl Fn(&Value) -> String) -> Vec<String> {
    items.as_array().into_iter().flatten().map(show).collect()
}

fn joined(items: &Value, with: &str) -> String {
    list(items, |item| text(item).to_owned()).join(with)
}

fn each(items: &Value, field: &str) -> String {
    list(items, |item| text(&item[field]).to_owned()).join(",")
}

fn count(value: &Value) -> usize {
    value.as_object().map(serde_json::Map::len).or_else(|| value.as_array().map(Vec::len)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::cell::human;

    #[test]
    fn ages_are_formatted_as_by_kubectl() {
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds}");
        }
    }
}
