//! What the server does to an object before storing it: defaults, its own fields, and validation. A module for each
//! kind with rules of its own.

mod claims;
mod containers;
mod jobs;
mod metadata;
mod pods;
pub(crate) mod policy;
mod services;
mod stateful_sets;

use serde_json::{Value, json};

pub(crate) use claims::PROTECTION;
pub(crate) use metadata::validate_metadata;

use super::kinds::{Kind, Shape};
use super::refusal::{Cause, Refusal};
use super::types::{self, Type};
use super::world::World;

/// Applies defaults. `old` is the stored object, if there is one.
pub(crate) fn default(kind: &Kind, object: &mut Value, old: Option<&Value>) {
    if let Shape::Custom(schema) = &kind.shape {
        schema.default(object);
        return;
    }
    match kind.kind.as_str() {
        "StatefulSet" => stateful_sets::default(object),
        "Job" => jobs::default(object),
        "Pod" => pods::default(object),
        "Service" => services::default(object, old),
        "PersistentVolumeClaim" => claims::default(object),
        "Secret" => {
            if object["type"].as_str().unwrap_or_default().is_empty() {
                object["type"] = "Opaque".into();
            }
            secret_data(object);
        }
        _ => {}
    }
}

/// `stringData` is write-only.
fn secret_data(object: &mut Value) {
    let Some(texts) = object.as_object_mut().and_then(|map| map.remove("stringData")) else { return };
    for (name, text) in texts.as_object().into_iter().flatten() {
        object["data"][name] = base64(text.as_str().unwrap_or_default().as_bytes()).into();
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = u32::from(chunk[0]) << 16
            | u32::from(chunk.get(1).copied().unwrap_or_default()) << 8
            | u32::from(chunk.get(2).copied().unwrap_or_default());
        for index in 0..4 {
            if index > chunk.len() {
                text.push('=');
            } else {
                text.push(char::from(DIGITS[(word >> (18 - 6 * index) & 63) as usize]));
            }
        }
    }
    text
}

/// Sets or removes the fields of a new object that the server owns.
pub(crate) fn prepare_create(world: &mut World, kind: &Kind, object: &mut Value) {
    if kind.is_custom() {
        if kind.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        return;
    }
    if kind.has_status
        && !kind.is("Node")
        && let Shape::Builtin(id) = kind.shape
        && let Some(Type::Struct(status)) = types::get(id).fields.get("status").map(|f| f.ty.clone())
    {
        object["status"] = types::zero_struct(status);
    }
    match kind.kind.as_str() {
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"]["phase"] = "Active".into();
        }
        "Job" => jobs::prepare_create(object),
        "Pod" => pods::prepare_create(object),
        "Service" => services::prepare_create(world, object),
        "PersistentVolumeClaim" => claims::prepare_create(world, object),
        "PersistentVolume" => object["status"] = json!({"phase": "Pending"}),
        "CustomResourceDefinition" => {
            let now = world.timestamp();
            super::server::established(object, &now);
        }
        _ => {}
    }
}

/// Restores the fields of a changed object that the server owns.
pub(crate) fn prepare_update(kind: &Kind, object: &mut Value, old: &Value) {
    if kind.is("Namespace") {
        object["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
        if object["spec"]["finalizers"].is_null() {
            object["spec"] = json!({});
        }
    }
    if kind.is("Pod") {
        pods::prepare_update(object, old);
    }
}

/// Validates an object that is created (`old` is `None`) or updated.
pub(crate) fn validate(world: &World, kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    if let Shape::Custom(schema) = &kind.shape {
        return schema.validate(object, old, kind.scale.as_ref());
    }
    match kind.kind.as_str() {
        "StatefulSet" => stateful_sets::validate(object, old),
        "Job" => jobs::validate(object, old),
        "Pod" => pods::validate(object, old),
        "Service" => services::validate(world, object, old),
        "PersistentVolumeClaim" => claims::validate(object, old),
        "ControllerRevision" => {
            old.and_then(|old| Cause::unchanged("data", &old["data"], &object["data"])).into_iter().collect()
        }
        "ConfigMap" | "Secret" => immutable_content(object, old),
        _ => Vec::new(),
    }
}

/// Validates a write to the status.
pub(crate) fn validate_status(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    if let Shape::Custom(schema) = &kind.shape {
        return schema.validate_status(object, old, kind.scale.as_ref());
    }
    Vec::new()
}

fn immutable_content(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return Vec::new() };
    ["data", "binaryData", "immutable"]
        .iter()
        .filter(|field| old[**field] != object[**field])
        .map(|field| Cause::forbidden(*field, "field is immutable when `immutable` is set"))
        .collect()
}

/// Checks whether admission allows a new object.
pub(crate) fn allow_create(
    world: &World,
    kind: &Kind,
    namespace: &str,
    object: &Value,
) -> Result<(), Refusal> {
    if !kind.is("Pod") {
        return Ok(());
    }
    let account = object["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    if account != "default" && world.find("ServiceAccount", namespace, account).is_none() {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        );
        return Err(Refusal::forbidden(kind, super::store::meta(object, "name"), &why));
    }
    Ok(())
}

/// Checks whether admission allows a valid change.
pub(crate) fn allow_update(world: &World, kind: &Kind, object: &Value, old: &Value) -> Result<(), Refusal> {
    if !kind.is("PersistentVolumeClaim") {
        return Ok(());
    }
    match claims::refused_growth(world, object, old) {
        Some(why) => Err(Refusal::forbidden(kind, super::store::meta(old, "name"), why)),
        None => Ok(()),
    }
}
