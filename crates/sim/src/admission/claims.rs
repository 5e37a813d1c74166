//! `PersistentVolumeClaims`.

use serde_json::{Map, Value, json};

use super::super::refusal::Cause;
use super::super::types::Quantity;
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
    let Some(old) = old else { return causes };
    if fixed(claim, old) != fixed(old, old) {
        causes.push(Cause::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    // A request may return to what is above the present size, so that a failed growth can be given up.
    let (new, present) = (requested(claim), size(&old["status"]["capacity"]));
    if new < requested(old) && new <= present.or_else(|| Quantity::parse("0").ok()) {
        let field = "spec.resources.requests.storage";
        causes.push(Cause::forbidden(field, "field can not be less than status.capacity"));
    }
    causes
}

/// The part of a spec that may not change.
fn fixed(claim: &Value, old: &Value) -> Map<String, Value> {
    let mut spec = claim["spec"].clone();
    if old["status"]["phase"] == "Bound"
        && let Some(requests) = spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut)
    {
        requests.remove("storage");
    }
    let mut fields = spec.as_object().cloned().unwrap_or_default();
    // The volume of a claim may be set once.
    if old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
        fields.remove("volumeName");
    }
    fields
}

fn size(resources: &Value) -> Option<Quantity> {
    Quantity::parse(resources["storage"].as_str()?).ok()
}

fn requested(claim: &Value) -> Option<Quantity> {
    size(&claim["spec"]["resources"]["requests"])
}

/// Why a claim may not grow, if it is to: the admission plugin `PersistentVolumeClaimResize`.
pub(super) fn refused_growth(world: &World, claim: &Value, old: &Value) -> Option<&'static str> {
    if requested(claim) <= requested(old) {
        return None;
    }
    if old["status"]["phase"] != "Bound" {
        return Some("Only bound persistent volume claims can be expanded");
    }
    let class =
        world.find("StorageClass", "", claim["spec"]["storageClassName"].as_str().unwrap_or_default());
    let grows = class.is_some_and(|class| class.value["allowVolumeExpansion"] == true);
    (!grows).then_some(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
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
