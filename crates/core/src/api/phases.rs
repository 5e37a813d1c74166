//! The values of `status.phase`. The conditions report the same, with reasons. No decision depends on a phase.

use strum::{AsRefStr, Display, EnumString};

/// `status.phase` of a fleet.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
pub enum FleetPhase {
    /// The fleet is being deleted.
    Terminating,
    /// `spec.paused` is true.
    Paused,
    /// No node can run the pod template it was granted.
    Failed,
    /// A rollout is active.
    Upgrading,
    /// Some nodes cannot run the pod template they were granted.
    Degraded,
    /// The nodes are being created for the first time.
    Initializing,
    /// Every node is Ready.
    Ready,
    /// Nodes are missing or not Ready.
    Pending,
}

/// `status.phase` of a node.
#[derive(AsRefStr, Clone, Copy, Debug, Display, Eq, PartialEq)]
pub enum NodePhase {
    /// The node is being deleted.
    Terminating,
    /// `spec.suspend` is true.
    Suspended,
    /// The node cannot run the pod template it was granted.
    Failed,
    /// A plan that replaces the pod is active.
    Updating,
    /// The pod is Ready.
    Running,
    /// The pod has not been Ready yet.
    Initializing,
    /// The pod is missing or not Ready.
    Pending,
}
