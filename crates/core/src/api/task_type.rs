//! The types of tasks that something else is decided by. Their names are wire format: they are in the status of running
//! clusters.

use crate::engine::{Plan, TaskRecord};

crate::engine::words! {
    /// A type of task that comes with Windlass.
    pub enum TaskType {
        /// Waits until every new node has caught up with its peers.
        AwaitCaughtUp = "await-caught-up",
        /// Waits until the old nodes have halted at a height.
        AwaitNodesAtHeight = "await-nodes-at-height",
        /// Waits until the new nodes run.
        AwaitNodesRunning = "await-nodes-running",
        /// Waits until a set may take over.
        AwaitPromotion = "await-promotion",
        /// Waits until the node is deleted.
        AwaitRemoval = "await-removal",
        /// Waits for a person.
        AwaitApproval = "await-approval",
        /// Makes a set of nodes.
        CreateEntrants = "create-entrants",
        /// Waits until the node, or every node, serves, and has the sidecar know it.
        MarkReady = "mark-ready",
        /// Takes down the pod that is not at the grant.
        ReplacePod = "replace-pod",
        /// Removes the set that served.
        RetireIncumbents = "retire-incumbents",
        /// Runs a Job.
        RunJob = "run-job",
        /// Asks the old nodes to halt at a height.
        SubmitHalt = "submit-halt",
        /// Moves the Service to another set.
        SwitchTraffic = "switch-traffic",
        /// Moves a fleet's nodes, and, with a step, those of that step.
        UpdateNodeSpecs = "update-node-specs",
    }
}

impl TaskType {
    /// The type of a plan's next step, if it is one of these.
    #[must_use]
    pub fn next_of(plan: &Plan) -> Option<Self> {
        Self::of(&plan.current_task()?.type_)
    }

    /// Whether a task is of this type.
    #[must_use]
    pub fn is(self, task: &TaskRecord) -> bool {
        task.type_ == self.as_str()
    }
}
