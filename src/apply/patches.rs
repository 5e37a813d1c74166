//! JSON patches for the objects of nodes and fleets: whole fields, and only those that differ.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::TemplateMeta;
use crate::render::{self, MetadataChange};
use windlass_kube_port::observed::{Meta, ObservedService, ObservedStatefulSet};
use windlass_kube_port::{Kind, PatchOp, Target, port::pointer_key};

/// The update strategy of a node's StatefulSet.
const ON_DELETE: &str = "OnDelete";

/// The JSON patch operations for a change of labels and annotations.
#[must_use]
pub fn metadata_ops(meta: &Meta, change: &MetadataChange) -> Vec<PatchOp> {
    let mut ops = Vec::new();
    let fields = [
        ("labels", &change.labels, meta.has_labels, &meta.labels),
        ("annotations", &change.annotations, meta.has_annotations, &meta.annotations),
    ];
    for (field, changes, exists, live) in fields {
        if !changes.is_empty() && !exists {
            ops.push(PatchOp::set(format!("/metadata/{field}"), Value::Object(serde_json::Map::new())));
        }
        for (key, value) in changes {
            let path = format!("/metadata/{field}/{}", pointer_key(key));
            match value {
                Some(value) => ops.push(PatchOp::set(path, Value::String(value.clone()))),
                None if live.contains_key(key) => ops.push(PatchOp::remove(path)),
                None => {}
            }
        }
    }
    ops
}

/// The change that brings the metadata of an existing child to the desired state.
#[must_use]
pub fn metadata_change(meta: &Meta, wanted: &TemplateMeta, own: &TemplateMeta) -> MetadataChange {
    render::metadata_change(wanted, own, &meta.labels, &meta.annotations)
}

/// The operations that bring a live Service to its desired spec; none if it already has it.
#[must_use]
pub fn service_ops(service: &ObservedService, wanted: &Value) -> Vec<PatchOp> {
    let (mut ops, spec) = (Vec::new(), service.spec.value());
    for field in ["selector", "publishNotReadyAddresses"] {
        let (live, want) = (&spec[field], &wanted["spec"][field]);
        if !want.is_null() && live != want {
            ops.push(PatchOp::set(format!("/spec/{field}"), want.clone()));
        }
    }
    let (live, want) = (ports(&spec["ports"]), ports(&wanted["spec"]["ports"]));
    if live != want {
        match &wanted["spec"]["ports"] {
            Value::Array(list) => ops.push(PatchOp::set("/spec/ports", Value::Array(list.clone()))),
            _ => ops.push(PatchOp::remove("/spec/ports")),
        }
    }
    ops
}

/// Ports with the API server's defaults filled in, and without the fields that it adds.
fn ports(list: &Value) -> Vec<BTreeMap<&'static str, Value>> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let with_defaults = |port: &Value| {
        let number = port["port"].clone();
        let or =
            |field: &str, default: Value| if port[field].is_null() { default } else { port[field].clone() };
        BTreeMap::from([
            ("name", or("name", Value::String(String::new()))),
            ("targetPort", or("targetPort", number.clone())),
            ("protocol", or("protocol", Value::String("TCP".to_owned()))),
            ("port", number),
        ])
    };
    list.iter().map(with_defaults).collect()
}

/// The target of a guarded write to a node's StatefulSet.
#[must_use]
pub fn set_target(set: &ObservedStatefulSet) -> Target {
    Target::of(Kind::StatefulSet, &set.meta)
}

/// The operations that set the fields of a StatefulSet that Windlass alone decides. `replicas`: `None` if they stay.
#[must_use]
pub fn own_field_ops(set: &ObservedStatefulSet, replicas: Option<i64>) -> Vec<PatchOp> {
    let mut ops = Vec::new();
    if let Some(replicas) = replicas.filter(|replicas| *replicas != set.replicas) {
        ops.push(PatchOp::set("/spec/replicas", json!(replicas)));
    }
    // Windlass deletes the pod.
    if set.update_strategy != ON_DELETE {
        ops.push(PatchOp::set("/spec/updateStrategy", json!({"type": ON_DELETE})));
    }
    if set.revision_history_limit.is_some_and(|limit| limit != render::REVISION_HISTORY_LIMIT) {
        ops.push(PatchOp::set("/spec/revisionHistoryLimit", json!(render::REVISION_HISTORY_LIMIT)));
    }
    if set.deletes_claims {
        ops.push(PatchOp::set("/spec/persistentVolumeClaimRetentionPolicy", render::claim_retention()));
    }
    ops
}
