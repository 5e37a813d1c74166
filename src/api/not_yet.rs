//! What the API describes and this version does not do: refused by the API server with a sentence that says so.
//! Whoever builds one of these removes its rule here, and the words "Not available in this version" at the field.

use super::rules::{Reason, Rule};

/// Rules of a node's spec.
pub(super) const NODE_SPEC: &[Rule] = &[Rule::new(
    "sidecar.tokenSecret",
    "self == ''",
    "sidecar.tokenSecret: sidecar authentication is not available in this version, remove it",
)
.class(Reason::Forbidden)];
