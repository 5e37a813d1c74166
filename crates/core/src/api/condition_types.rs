//! The types and statuses of conditions.

use strum::{AsRefStr, Display};

/// Condition type: every node (or this node) is ready.
pub const READY: &str = "Ready";

/// Condition type of a fleet: the last completed revision is the desired one.
pub const UP_TO_DATE: &str = "UpToDate";

/// Condition type of a fleet: a rollout is active.
pub const ROLLOUT_IN_PROGRESS: &str = "RolloutInProgress";

/// Condition type of a node: a plan that replaces its pod is active.
pub const NODE_UPDATE_IN_PROGRESS: &str = "NodeUpdateInProgress";

/// Condition type of a node: what its sidecar last reported.
pub const SIDECAR_READY: &str = "SidecarReady";

/// Condition type of a StatefulSetRollout: only Windlass updates the pods of its StatefulSets.
pub const HELD: &str = "Held";

/// Condition type of a fleet: its PodDisruptionBudget is as desired. Present only while it is not.
pub const DISRUPTION_BUDGET_READY: &str = "DisruptionBudgetReady";

/// Condition type of a fleet: the failure domain of each node is known. Present only while it is not.
pub const TOPOLOGY_KNOWN: &str = "TopologyKnown";

/// Condition type: kstatus interprets `True` as failed.
pub const STALLED: &str = "Stalled";

/// Condition type: kstatus interprets `True` as in progress.
pub const RECONCILING: &str = "Reconciling";

/// A condition's status.
#[derive(AsRefStr, Clone, Copy, Debug, Display, Eq, PartialEq)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is unknown whether the condition holds.
    Unknown,
}
