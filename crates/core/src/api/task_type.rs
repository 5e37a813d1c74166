//! The task types that other code depends on. Their names are part of the wire format: they are stored in the statuses
//! of running clusters.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use crate::engine::{Plan, TaskRecord};

/// A built-in task type that other code depends on.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum TaskType {
    /// Creates the node's StatefulSet, or writes the granted template into it.
    ApplyStatefulSet,
    /// Waits until every new node has caught up with its peers.
    AwaitCaughtUp,
    /// Waits until the old nodes have halted at a height.
    AwaitNodesAtHeight,
    /// Waits until the new nodes run.
    AwaitNodesRunning,
    /// Waits until the new set may take over.
    AwaitPromotion,
    /// Waits until the volumes of the claims have their new sizes.
    AwaitExpansion,
    /// Waits until the node is deleted.
    AwaitRemoval,
    /// Waits for a user's approval.
    AwaitApproval,
    /// Creates a set of nodes.
    CreateEntrants,
    /// Raises the requests of volume claims.
    ExpandClaims,
    /// Sends the sidecar a request to mark the node as ready, and waits until the node is ready (in a fleet's plan:
    /// until every node is available).
    MarkReady,
    /// Deletes the pod if it is not at the granted hash.
    ReplacePod,
    /// Creates the StatefulSet again with the new sizes of its claims; its pod stays.
    ReplaceStatefulSet,
    /// Removes the old set.
    RetireIncumbents,
    /// Runs a Job.
    RunJob,
    /// Sends the old nodes a request to halt at a height.
    SubmitHalt,
    /// Moves the Service to another set.
    SwitchTraffic,
    /// Grants the target to a fleet's nodes, or only to the nodes of a step.
    UpdateNodeSpecs,
}

impl TaskType {
    /// The type of a plan's current task, if it is one of these.
    #[must_use]
    pub fn next_of(plan: &Plan) -> Option<Self> {
        plan.current_task()?.type_.parse().ok()
    }

    /// True if a task is of this type.
    #[must_use]
    pub fn is(self, task: &TaskRecord) -> bool {
        task.type_ == self.as_ref()
    }
}
