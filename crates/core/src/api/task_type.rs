//! The task types that other code depends on. Their names are part of the wire format: they are stored in the statuses
//! of running clusters.

use crate::engine::{Plan, TaskRecord};

crate::engine::words! {
    /// A built-in task type that other code depends on.
    pub enum TaskType {
        /// Waits until every new node has caught up with its peers.
        AwaitCaughtUp = "await-caught-up",
        /// Waits until the old nodes have halted at a height.
        AwaitNodesAtHeight = "await-nodes-at-height",
        /// Waits until the new nodes run.
        AwaitNodesRunning = "await-nodes-running",
        /// Waits until the new set may take over.
        AwaitPromotion = "await-promotion",
        /// Waits until the node is deleted.
        AwaitRemoval = "await-removal",
        /// Waits for a user's approval.
        AwaitApproval = "await-approval",
        /// Creates a set of nodes.
        CreateEntrants = "create-entrants",
        /// Has the sidecar mark the node as ready, and waits until the node (in a fleet's plan: every node) serves.
        MarkReady = "mark-ready",
        /// Deletes the pod if it is not at the granted hash.
        ReplacePod = "replace-pod",
        /// Removes the old set.
        RetireIncumbents = "retire-incumbents",
        /// Runs a Job.
        RunJob = "run-job",
        /// Asks the old nodes to halt at a height.
        SubmitHalt = "submit-halt",
        /// Moves the Service to another set.
        SwitchTraffic = "switch-traffic",
        /// Grants the target to a fleet's nodes, or only to the nodes of a step.
        UpdateNodeSpecs = "update-node-specs",
    }
}

impl TaskType {
    /// The type of a plan's current task, if it is one of these.
    #[must_use]
    pub fn next_of(plan: &Plan) -> Option<Self> {
        Self::of(&plan.current_task()?.type_)
    }

    /// True if a task is of this type.
    #[must_use]
    pub fn is(self, task: &TaskRecord) -> bool {
        task.type_ == self.as_str()
    }
}
