//! The scale subresource: replicas at the paths that the kind names.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::custom::ScalePaths;
use super::super::kinds::Kind;
use super::super::refusal::{Cause, Refusal};
use super::super::store::{Key, Object, meta};
use super::super::types;
use super::super::world::World;
use super::patch::patched;
use super::{Part, PatchKind, WriteOptions};

impl World {
    /// An object's Scale.
    pub(crate) fn scale(&self, kind: &Kind, key: &Key) -> Result<Value, Refusal> {
        let paths = kind.scale.as_ref().ok_or_else(Refusal::no_such_path)?;
        let object = self.store.get(kind.shelf, key).ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        Ok(scale_of(kind, paths, object))
    }

    /// Writes an object's Scale: by PUT if `how` is `None`, else by PATCH.
    pub(crate) fn write_scale(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        how: Option<PatchKind>,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<Value, Refusal> {
        let paths = kind.scale.clone().ok_or_else(Refusal::no_such_path)?;
        let old = self.store.get(kind.shelf, key).cloned();
        let old = old.ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        let current = scale_of(kind, &paths, &old);
        let wanted = match how {
            None => body.clone(),
            Some(PatchKind::Strategic) => patched(kind, PatchKind::Merge, current, body)?,
            Some(how) => patched(kind, how, current, body)?,
        };
        if let Some(id) = types::find("autoscaling.Scale") {
            types::decode(id, wanted.clone()).map_err(|why| {
                Refusal::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
            })?;
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
        if replicas < 0 && !kind.is_custom() {
            let cause =
                Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            let mut refusal = Refusal::invalid(kind, &key.1, &[cause]);
            refusal.message = refusal.message.replacen(&kind.group_kind(), "Scale.autoscaling", 1);
            return Err(refusal);
        }
        let mut new = old.value.clone();
        set(&mut new, &paths.spec, replicas.into());
        if !meta(&wanted, "resourceVersion").is_empty() {
            new["metadata"]["resourceVersion"] = wanted["metadata"]["resourceVersion"].clone();
        }
        if !meta(&wanted, "uid").is_empty() {
            new["metadata"]["uid"] = wanted["metadata"]["uid"].clone();
        }
        let options = WriteOptions { subresource: true, ..options.clone() };
        let changed = self.change(kind, key, Part::Main, &old, new, &options)?;
        Ok(scale_of(kind, &paths, &changed))
    }
}

fn scale_of(kind: &Kind, paths: &ScalePaths, object: &Arc<Object>) -> Value {
    let metadata = &object.value["metadata"];
    let mut status = json!({"replicas": get(&object.value, &paths.status).as_i64().unwrap_or_default()});
    let selector = match &paths.selector {
        Some(path) => get(&object.value, path).as_str().map(str::to_owned),
        None => Some(selector_text(&object.value["spec"]["selector"])),
    };
    if let Some(selector) = selector.filter(|text| !text.is_empty() || kind.is_custom()) {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if let Some(replicas) = get(&object.value, &paths.spec).as_i64().filter(|n| *n != 0) {
        spec["replicas"] = replicas.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": spec, "status": status,
    })
}

fn get<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |at, step| &at[step.as_str()])
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let slot = path.iter().fold(object, |at, step| &mut at[step.as_str()]);
    *slot = value;
}

/// A `LabelSelector` as text, with sorted keys.
fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let parts: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    parts.join(",")
}
