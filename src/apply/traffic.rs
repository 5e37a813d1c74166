//! Which set of nodes a fleet's Service selects.

use serde_json::json;

use super::patches::metadata_ops;
use crate::api::SetName;
use crate::api::names::ANNOTATION_SWITCHED_TO;
use crate::observe::is_switched;
use crate::render::{MetadataChange, fleet_selector};
use windlass_kube_port::PatchOp;
use windlass_kube_port::observed::ObservedService;

/// True if a fleet's Service selects this set and nothing else, and a promotion has moved it there.
#[must_use]
pub fn is_at(service: &ObservedService, set: &SetName) -> bool {
    service.spec.value()["selector"] == json!(fleet_selector(&service.meta.name, set))
        && is_switched(service, set)
}

/// The operations that move the Service to a set, in one patch.
#[must_use]
pub fn move_to(service: &ObservedService, set: &SetName) -> Vec<PatchOp> {
    let moved = MetadataChange {
        annotations: [(ANNOTATION_SWITCHED_TO.to_owned(), Some(set.to_string()))].into(),
        ..MetadataChange::default()
    };
    let mut ops = metadata_ops(&service.meta, &moved);
    ops.push(PatchOp::set("/spec/selector", json!(fleet_selector(&service.meta.name, set))));
    ops
}
