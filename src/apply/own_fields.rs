//! The fields of a node's StatefulSet that Windlass alone decides: `replicas` and `updateStrategy`. Admission may change
//! them in our own write. Then they are set again once in a while, and the node says which they are.

use std::mem::discriminant;
use std::time::Duration;

use serde_json::json;

use crate::clock::monotonic;
use crate::cluster::memory::KeptFields;
use crate::cluster::observed::{ObservedNode, ObservedStatefulSet};
use crate::cluster::{Memory, PatchOp};
use crate::observe::node_scope::deletes_claims;

/// How soon fields of a StatefulSet that admission changed are set again.
pub(super) const PUT_BACK_AGAIN: Duration = Duration::from_mins(1);
/// The update strategy of a node's StatefulSet: Windlass deletes the pod.
const ON_DELETE: &str = "OnDelete";

/// A field that differs.
pub(super) enum OwnField {
    Replicas { wanted: i64, live: i64 },
    UpdateStrategy { live: String },
}

impl OwnField {
    /// The fields of a StatefulSet that differ from what Windlass decides.
    pub(super) fn that_differ(set: &ObservedStatefulSet, node: &ObservedNode, replicas: i64) -> Vec<Self> {
        let mut fields = Vec::new();
        // A StatefulSet that deletes claims when it is scaled down is not scaled down.
        if set.replicas != replicas && (replicas > 0 || !deletes_claims(set, node)) {
            fields.push(Self::Replicas { wanted: replicas, live: set.replicas });
        }
        if set.update_strategy != ON_DELETE {
            fields.push(Self::UpdateStrategy { live: set.update_strategy.clone() });
        }
        fields
    }

    /// True if these are about the same field, among others.
    pub(super) fn is_among(&self, others: &[Self]) -> bool {
        others.iter().any(|other| discriminant(self) == discriminant(other))
    }

    /// The operation that sets the field.
    pub(super) fn op(&self) -> PatchOp {
        match self {
            Self::Replicas { wanted, .. } => PatchOp::set("/spec/replicas", json!(wanted)),
            Self::UpdateStrategy { .. } => PatchOp::set("/spec/updateStrategy", json!({"type": ON_DELETE})),
        }
    }

    /// Says that admission changes these fields, if there are any.
    pub(super) fn sentence(set: &str, fields: &[Self]) -> Option<String> {
        let differs = |field: &Self| match field {
            Self::Replicas { wanted, live } => format!("replicas is {live} instead of {wanted}"),
            Self::UpdateStrategy { live } => format!("updateStrategy is {live} instead of {ON_DELETE}"),
        };
        let all: Vec<String> = fields.iter().map(differs).collect();
        (!all.is_empty()).then(|| {
            format!(
                "StatefulSet {set}: {}, and setting it back has no effect: exempt the StatefulSets of Windlass from the \
                 admission policy that changes it",
                all.join(", ")
            )
        })
    }
}

/// True if the fields are as admission left our last write of the same values, and it is too soon to try again.
pub(super) fn are_kept(memory: &Memory, set: &ObservedStatefulSet, replicas: i64) -> bool {
    memory.kept_fields.get(&set.meta.uid).is_some_and(|kept| {
        kept.wanted_replicas == replicas
            && kept.replicas == set.replicas
            && kept.update_strategy == set.update_strategy
            && monotonic().duration_since(kept.at) < PUT_BACK_AGAIN
    })
}

/// Records the fields as admission left our write of them.
pub(super) fn remember_kept(memory: &Memory, written: &ObservedStatefulSet, replicas: i64) {
    let kept = KeptFields {
        at: monotonic(),
        wanted_replicas: replicas,
        replicas: written.replicas,
        update_strategy: written.update_strategy.clone(),
    };
    memory.kept_fields.put(&written.meta.uid, kept);
}
