//! `PersistentVolumeClaims`.

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::super::world::World;
use super::containers::fill;

/// The finalizer that keeps a claim while a pod uses it.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";

pub(super) fn default(claim: &mut Value) {
    if !claim["spec"].is_object() {
        claim["spec"] = json!({});
    }
    fill(&mut claim["spec"], "volumeMode", "Filesystem");
}

pub(super) fn prepare_create(world: &World, claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
    let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|f| f == PROTECTION) {
        finalizers.push(PROTECTION.into());
    }
    claim["metadata"]["finalizers"] = finalizers.into();
    if claim["spec"].get("storageClassName").is_none_or(Value::is_null)
        && let Some(class) = default_class(world)
    {
        claim["spec"]["storageClassName"] = class.into();
    }
    if let Some(spec) = claim["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
}

fn default_class(world: &World) -> Option<String> {
    let kind = world.kind("StorageClass")?;
    world
        .store
        .list(kind.shelf, "")
        .find(|(_, class)| {
            class.value["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
        })
        .map(|((_, name), _)| name.clone())
}

pub(super) fn validate(claim: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate_spec(&claim["spec"], "spec");
    if let Some(old) = old {
        let rest = |claim: &Value| {
            let mut spec = claim["spec"].as_object().cloned().unwrap_or_default();
            spec.remove("resources");
            // The volume of a claim may be set once.
            if old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
                spec.remove("volumeName");
            }
            spec
        };
        if rest(claim) != rest(old) {
            causes.push(Cause::forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ));
        }
    }
    causes
}

pub(super) fn validate_spec(spec: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        causes.push(Cause::required(format!("{at}.accessModes"), "at least 1 access mode is required"));
    }
    if !spec["resources"]["requests"]["storage"].is_string() {
        causes.push(Cause::required(format!("{at}.resources[storage]"), ""));
    }
    causes
}
