//! The discovery API, as far as kube and kubectl use it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::kinds::{Kind, Kinds};
use super::super::refusal::Refusal;

/// `/version`, `/healthz`, `/api`, `/apis`, `/apis/<group>`.
pub(crate) fn meta(kinds: &Kinds, path: &str) -> Result<Value, Refusal> {
    let path = path.trim_end_matches('/');
    match path {
        "/version" => Ok(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3-windlass", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "simulated",
        })),
        "/healthz" | "/readyz" | "/livez" => Ok(json!("ok")),
        "/api" => Ok(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        })),
        "/apis" => Ok(json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups(kinds).iter().map(|(name, versions)| api_group(name, versions)).collect::<Vec<_>>(),
        })),
        _ => {
            let group = path.strip_prefix("/apis/").ok_or_else(Refusal::no_such_path)?;
            let groups = groups(kinds);
            let versions = groups.get(group).ok_or_else(Refusal::no_such_path)?;
            let mut body = api_group(group, versions);
            body["kind"] = "APIGroup".into();
            body["apiVersion"] = "v1".into();
            Ok(body)
        }
    }
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub(crate) fn group(kinds: &Kinds, group: &str, version: &str) -> Result<Value, Refusal> {
    let mut resources = Vec::new();
    for kind in kinds.all().filter(|k| k.group == group && k.version == version) {
        resources.push(resource(kind));
        if kind.has_status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
        if kind.scale.is_some() {
            resources.push(json!({
                "name": format!("{}/scale", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if resources.is_empty() {
        return Err(Refusal::no_such_path());
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources,
    }))
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    entry
}

/// The verbs of a kind, in the order of the real server.
fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.is_custom() {
        &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else if kind.is("Namespace") {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }
}

fn groups(kinds: &Kinds) -> BTreeMap<String, BTreeSet<String>> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in kinds.all().filter(|kind| !kind.group.is_empty()) {
        groups.entry(kind.group.clone()).or_default().insert(kind.version.clone());
    }
    groups
}

fn api_group(name: &str, versions: &BTreeSet<String>) -> Value {
    let list: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": list, "preferredVersion": list.first()})
}
