//! The fleet after a change, from a dry run on the API server, with defaults and validation.

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use serde_json::{Map, Value, json};

use super::cluster::is_about_rights;
use crate::reader::sentence;
use windlass_core::api::names::{CLI_MANAGER, GROUP};
use windlass_kube_port::Kind;
use windlass_kube_port::observed::LAST_APPLIED;
use windlass_kube_port::strict;

/// A change to be examined.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A manifest is applied, as `kubectl apply` does.
    Apply(Value),
    /// A merge patch.
    Merge(Value),
}

/// The result of a change.
pub enum After {
    /// The object as it would be, and what could not be checked.
    Taken(Value, Option<String>),
    /// The API server's refusal.
    Refused(String),
}

/// Gets the result of a change from the API server; `None`: the object does not exist.
pub async fn after(
    client: &Client,
    (kind, namespace, name): (Kind, &str, &str),
    before: Option<&Value>,
    change: &Change,
) -> Result<After, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.resource());
    let answer = match (before, change) {
        (None, Change::Merge(_)) => {
            return Err(format!(
                "{}.{GROUP}/{name} does not exist in namespace {namespace}; select another with --namespace, or a file with -f to create \
                 it",
                kind.name().to_lowercase()
            ));
        }
        (None, Change::Apply(manifest)) => {
            let raw = Api::namespaced_with(client.clone(), namespace, &kind.resource());
            let params = PostParams { dry_run: true, field_manager: Some(CLI_MANAGER.to_owned()) };
            let mut manifest = manifest.clone();
            manifest["metadata"]["namespace"] = json!(namespace);
            strict(&raw, &params, &manifest, client).await.map(|object| object.value())
        }
        (Some(before), change) => {
            let patch = patch(before, change);
            let params = PatchParams {
                dry_run: true,
                field_manager: Some(CLI_MANAGER.to_owned()),
                field_validation: Some(ValidationDirective::Strict),
                ..PatchParams::default()
            };
            api.patch(name, &params, &Patch::Merge(&patch)).await.map(|object| json!(object))
        }
    };
    match answer {
        Ok(object) => Ok(After::Taken(object, None)),
        Err(kube::Error::Api(status)) if status.code == 403 && is_about_rights(&status.message) => {
            let Some(before) = before else { return Ok(After::Refused(status.message.clone())) };
            Ok(After::Taken(
                merged(before, &patch(before, change)),
                Some(format!(
                    "not checked whether the API server accepts the {}: {}",
                    word(kind),
                    status.message
                )),
            ))
        }
        Err(kube::Error::Api(status)) => Ok(After::Refused(without_object(&status.message))),
        Err(error) => Err(sentence(&error)),
    }
}

/// The noun for an object of a kind.
fn word(kind: Kind) -> &'static str {
    if kind == Kind::NodeDeployment { "fleet" } else { kind.name() }
}

/// A refusal without the object that the API server prints before the unknown fields.
fn without_object(message: &str) -> String {
    const WHAT: &str = "strict decoding error: ";
    match message.split_once("Invalid value: ").and_then(|(_, rest)| rest.rsplit_once(WHAT)) {
        Some((_, fields)) => format!("{WHAT}{fields}"),
        None => message.to_owned(),
    }
}

/// The merge patch of a change.
fn patch(before: &Value, change: &Change) -> Value {
    match change {
        Change::Merge(patch) => patch.clone(),
        Change::Apply(manifest) => {
            let annotation = before["metadata"]["annotations"][LAST_APPLIED].as_str();
            let last = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
            let mut patch = three_way(&last, before, manifest);
            // These identify the object, or are not desired state.
            for field in ["apiVersion", "kind", "status"] {
                patch.as_object_mut().and_then(|patch| patch.remove(field));
            }
            patch
        }
    }
}

/// The three-way merge of `kubectl apply`: sets the fields of the manifest and removes those that only the last
/// manifest had. Others stay.
fn three_way(last: &Value, live: &Value, wanted: &Value) -> Value {
    let none = Map::new();
    let fields = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| none.clone());
    let (last_fields, live_fields) = (fields(last), fields(live));
    let mut patch = Map::new();
    for (key, wanted) in &fields(wanted) {
        let (last, live) = (last_fields.get(key).unwrap_or(&Value::Null), live_fields.get(key));
        match live {
            Some(live) if live.is_object() && wanted.is_object() => {
                let inner = three_way(last, live, wanted);
                if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                    patch.insert(key.clone(), inner);
                }
            }
            Some(live) if live == wanted => {}
            _ => drop(patch.insert(key.clone(), wanted.clone())),
        }
    }
    let gone = last_fields.keys().filter(|key| wanted.get(*key).is_none() && live_fields.contains_key(*key));
    for key in gone {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

fn merged(before: &Value, patch: &Value) -> Value {
    let mut after = before.clone();
    json_patch::merge(&mut after, patch);
    if after["spec"] != before["spec"] {
        after["metadata"]["generation"] =
            json!(before["metadata"]["generation"].as_i64().unwrap_or_default() + 1);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_field_error_omits_the_object() {
        let long = format!(
            " \"\" is invalid: patch: Invalid value: \"{{\\\"spec\\\":{{{}}}}}\": strict decoding error: unknown field \"spec.replica\"",
            "x".repeat(9_000)
        );
        assert_eq!(without_object(&long), "strict decoding error: unknown field \"spec.replica\"");
        let other =
            "NodeDeployment.windlass.dev \"db\" is invalid: spec.replicas: Invalid value: -1: at least 0";
        assert_eq!(without_object(other), other);
    }

    #[test]
    fn apply_removes_last_applied_fields_and_keeps_foreign_ones() {
        let last = json!({"spec": {"replicas": 3, "paused": true, "template": {"a": 1, "b": 2}}});
        let live = json!({"metadata": {"annotations": {LAST_APPLIED: last.to_string()}},
            "spec": {"replicas": 5, "paused": true, "forcePromote": "x", "template": {"a": 1, "b": 2, "c": 3}}});
        let wanted =
            json!({"kind": "NodeDeployment", "spec": {"replicas": 3, "template": {"a": 1, "list": [1]}}});
        let patch = patch(&live, &Change::Apply(wanted));
        assert_eq!(
            patch,
            json!({"spec": {"replicas": 3, "paused": null, "template": {"b": null, "list": [1]}}})
        );
        let after = merged(&live, &patch);
        assert_eq!(
            after["spec"],
            json!({"replicas": 3, "forcePromote": "x", "template": {"a": 1, "c": 3, "list": [1]}})
        );
        assert_eq!(after["metadata"]["generation"], 1);
        assert_eq!(merged(&live, &json!({}))["metadata"]["generation"], Value::Null);
    }
}
