//! Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::super::world::World;
use super::containers::fill;

pub(super) fn default(service: &mut Value, old: Option<&Value>) {
    let spec = &mut service["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    fill(spec, "sessionAffinity", "None");
    fill(spec, "type", "ClusterIP");
    let external = spec["type"] == "ExternalName";
    if !external {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", "TCP");
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    // An update without the allocated fields keeps them.
    if let Some(old) = old {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if !old["spec"][field].is_null() {
                fill(spec, field, old["spec"][field].clone());
            }
        }
        tidy(spec);
    }
}

fn tidy(spec: &mut Value) {
    if let Some(map) = spec.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// Allocates a cluster IP.
pub(super) fn prepare_create(world: &mut World, service: &mut Value) {
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
        let n = world.next_address;
        world.next_address += 1;
        spec["clusterIP"] = format!("10.96.{}.{}", n / 250, n % 250 + 1).into();
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", "SingleStack");
    service["status"] = json!({"loadBalancer": {}});
}

pub(super) fn validate(_: &World, service: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &service["spec"];
    let mut causes = Vec::new();
    let ports: Vec<&Value> = spec["ports"].as_array().into_iter().flatten().collect();
    if ports.is_empty() && spec["clusterIP"] != "None" && spec["type"] != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &port["name"]));
        }
        if !(1..=65535).contains(&port["port"].as_i64().unwrap_or_default()) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(format!("{at}.port"), &port["port"], why));
        }
        if !numbers.insert((port["port"].to_string(), port["protocol"].to_string())) {
            let key = json!({"port": port["port"], "protocol": port["protocol"]});
            causes.push(Cause::duplicate(at, &key));
        }
    }
    if let Some(old) = old {
        let (was, is) = (&old["spec"]["clusterIP"], &spec["clusterIP"]);
        if was != is && spec["type"] != "ExternalName" && old["spec"]["type"] != "ExternalName" {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([is]), "may not change once set"));
        }
    }
    causes
}
