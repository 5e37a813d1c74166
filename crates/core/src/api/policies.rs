//! The policies for the objects and volume claims that a deleted fleet or node leaves behind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of the nodes when the fleet is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// They go with it.
    #[default]
    Delete,
    /// They live on.
    Retain,
}

/// What becomes of volume claims when the node itself is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ClaimRetention {
    /// They stay.
    #[default]
    Retain,
    /// They go with the node.
    Delete,
}

impl ClaimRetention {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
