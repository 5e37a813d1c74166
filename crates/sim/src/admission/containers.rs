//! Defaults and validation of a pod's spec, in pods and templates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::super::types::Quantity;
use super::metadata::dns_label_error;

/// Sets a field that is absent.
pub(super) fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object[field].is_null() {
        object[field] = value.into();
    }
}

/// Applies the defaults of a pod's spec.
pub(super) fn default_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    mirror_account(spec);
    for list in ["containers", "initContainers"] {
        for container in items(&mut spec[list]) {
            default_container(container);
        }
    }
    if spec["initContainers"].is_null()
        && let Some(map) = spec.as_object_mut()
    {
        map.remove("initContainers");
    }
    if spec.get("volumes").is_some() {
        for volume in items(&mut spec["volumes"]) {
            default_volume(volume);
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; the server shows both.
fn mirror_account(spec: &mut Value) {
    let name = [&spec["serviceAccountName"], &spec["serviceAccount"]]
        .into_iter()
        .find(|value| value.is_string())
        .cloned();
    if let Some(name) = name {
        spec["serviceAccountName"] = name.clone();
        spec["serviceAccount"] = name;
    }
}

fn items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

fn default_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    fill(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    if container.get("ports").is_some() {
        for port in items(&mut container["ports"]) {
            fill(port, "protocol", "TCP");
        }
    }
    if container.get("env").is_some() {
        for variable in items(&mut container["env"]) {
            if variable["valueFrom"]["fieldRef"].is_object() {
                fill(&mut variable["valueFrom"]["fieldRef"], "apiVersion", "v1");
            }
            tidy(variable, "valueFrom");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            fill(probe, "timeoutSeconds", 1);
            fill(probe, "periodSeconds", 10);
            fill(probe, "successThreshold", 1);
            fill(probe, "failureThreshold", 3);
            default_handler(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook) {
                default_handler(hook);
            }
        }
    }
}

/// Removes the null that indexing a missing field mutably leaves behind.
fn tidy(object: &mut Value, field: &str) {
    if object[field].is_null()
        && let Some(map) = object.as_object_mut()
    {
        map.remove(field);
    }
}

fn default_handler(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc") {
        fill(grpc, "service", "");
    }
}

fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.len() == 1) {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", 420);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "");
    }
    for list in ["downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(list) else { continue };
        if let Some(items) = source.get_mut("items").and_then(Value::as_array_mut) {
            for item in items.iter_mut().filter(|i| i["fieldRef"].is_object()) {
                fill(&mut item["fieldRef"], "apiVersion", "v1");
            }
        }
        for source in source.get_mut("sources").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
        }
    }
}

/// Validates a pod's spec. `claims` are volumes from a set's claim templates.
pub(super) fn validate_spec(spec: &Value, path: &str, claims: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut volumes: BTreeSet<&str> = claims.iter().copied().collect();
    let mut own = BTreeSet::new();
    for (index, volume) in list(&spec["volumes"]).enumerate() {
        let at = format!("{path}.volumes[{index}].name");
        let name = volume["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
        } else if let Some(why) = dns_label_error(name) {
            causes.push(Cause::invalid(at, &volume["name"], &why));
        } else if !own.insert(name) {
            causes.push(Cause::duplicate(at, &volume["name"]));
        }
        volumes.insert(name);
    }
    if list(&spec["containers"]).next().is_none() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for field in ["containers", "initContainers"] {
        for (index, container) in list(&spec[field]).enumerate() {
            let at = format!("{path}.{field}[{index}]");
            causes.extend(validate_container(container, &at, &volumes));
            let name = container["name"].as_str().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                causes.push(Cause::duplicate(format!("{at}.name"), &container["name"]));
            }
        }
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        causes.push(Cause::invalid(
            format!("{path}.terminationGracePeriodSeconds"),
            &spec["terminationGracePeriodSeconds"],
            "must be greater than or equal to 0",
        ));
    }
    causes
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn validate_container(container: &Value, at: &str, volumes: &BTreeSet<&str>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match container["name"].as_str().unwrap_or_default() {
        "" => causes.push(Cause::required(format!("{at}.name"), "")),
        name => causes.extend(
            dns_label_error(name).map(|why| Cause::invalid(format!("{at}.name"), &container["name"], &why)),
        ),
    }
    if container["image"].as_str().unwrap_or_default().is_empty() {
        causes.push(Cause::required(format!("{at}.image"), ""));
    }
    let mut port_names = BTreeSet::new();
    for (index, port) in list(&container["ports"]).enumerate() {
        let at = format!("{at}.ports[{index}]");
        let number = port["containerPort"].as_i64().unwrap_or_default();
        if number == 0 {
            causes.push(Cause::required(format!("{at}.containerPort"), ""));
        } else if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(
                format!("{at}.containerPort"),
                &port["containerPort"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        if let Some(name) = port["name"].as_str()
            && !port_names.insert(name)
        {
            causes.push(Cause::duplicate(format!("{at}.name"), &port["name"]));
        }
        protocol(&port["protocol"], &at, &mut causes);
    }
    let mut mounts = BTreeSet::new();
    for (index, mount) in list(&container["volumeMounts"]).enumerate() {
        let at = format!("{at}.volumeMounts[{index}]");
        let name = mount["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(name) {
            causes.push(Cause::not_found(format!("{at}.name"), &mount["name"]));
        }
        match mount["mountPath"].as_str().unwrap_or_default() {
            "" => causes.push(Cause::required(format!("{at}.mountPath"), "")),
            path if !mounts.insert(path) => {
                causes.push(Cause::invalid(format!("{at}.mountPath"), &mount["mountPath"], "must be unique"));
            }
            _ => {}
        }
    }
    for (index, variable) in list(&container["env"]).enumerate() {
        if variable["name"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(format!("{at}.env[{index}].name"), ""));
        }
    }
    if let Some(policy) = container["imagePullPolicy"].as_str()
        && !matches!(policy, "Always" | "IfNotPresent" | "Never")
    {
        let allowed = ["Always", "IfNotPresent", "Never"].map(String::from);
        causes.push(Cause::unsupported(
            format!("{at}.imagePullPolicy"),
            &container["imagePullPolicy"],
            &allowed,
        ));
    }
    causes.extend(resources(&container["resources"], &format!("{at}.resources")));
    causes
}

fn protocol(value: &Value, at: &str, causes: &mut Vec<Cause>) {
    if let Some(text) = value.as_str()
        && !matches!(text, "TCP" | "UDP" | "SCTP")
    {
        let allowed = ["SCTP", "TCP", "UDP"].map(String::from);
        causes.push(Cause::unsupported(format!("{at}.protocol"), value, &allowed));
    }
}

fn resources(resources: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let read = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    for field in ["limits", "requests"] {
        for (name, value) in resources[field].as_object().into_iter().flatten() {
            if read(value).is_some_and(|quantity| quantity.is_negative()) {
                causes.push(Cause::invalid(
                    format!("{at}.{field}[{name}]"),
                    value,
                    "must be greater than or equal to 0",
                ));
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        if let (Some(wanted), Some(limit)) = (read(request), read(&resources["limits"][name]))
            && wanted > limit
        {
            causes.push(Cause::invalid(
                format!("{at}.requests"),
                request,
                &format!("must be less than or equal to {name} limit of {limit}"),
            ));
        }
    }
    causes
}
