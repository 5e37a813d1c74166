//! The policies for the objects and volume claims that a deleted fleet or node leaves behind, and for evictions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to the nodes when their fleet is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// The nodes are deleted with the fleet.
    #[default]
    Delete,
    /// The nodes stay.
    Retain,
}

/// What happens to volume claims when their node is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ClaimRetention {
    /// The volume claims stay.
    #[default]
    Retain,
    /// The volume claims are deleted with the node.
    Delete,
}

/// Whether Windlass creates a PodDisruptionBudget for a fleet.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DisruptionBudget {
    /// Windlass creates one that lets evictions take as many nodes as the wave.
    #[default]
    Managed,
    /// Windlass creates none.
    None,
}

impl ClaimRetention {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
