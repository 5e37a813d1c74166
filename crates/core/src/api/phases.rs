//! The values of `status.phase`. The conditions report the same, with reasons. No decision depends on a phase.

use strum::{AsRefStr, Display, EnumString};

/// `status.phase` of a fleet.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
pub enum FleetPhase {
    /// It is being deleted.
    Terminating,
    /// `spec.paused` is true.
    Paused,
    /// No node can run what it was granted.
    Failed,
    /// A rollout is active.
    Upgrading,
    /// Some nodes cannot run what they were granted.
    Degraded,
    /// Its nodes are being created for the first time.
    Initializing,
    /// Every node is Ready.
    Ready,
    /// Nodes are missing or not Ready.
    Pending,
}

/// `status.phase` of a node.
#[derive(AsRefStr, Clone, Copy, Debug, Display, Eq, PartialEq)]
pub enum NodePhase {
    /// It is being deleted.
    Terminating,
    /// `spec.suspend` is true.
    Suspended,
    /// It cannot run what it was granted.
    Failed,
    /// A plan that replaces its pod is active.
    Updating,
    /// Its pod is Ready.
    Running,
    /// Its pod has not been Ready yet.
    Initializing,
    /// Its pod is missing or not Ready.
    Pending,
}
