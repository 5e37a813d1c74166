//! The types of tasks that something else is decided by. Their names are wire format: they are in the status of running
//! clusters.

use crate::engine::{Plan, TaskRecord};

/// A type of task that comes with Windlass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskType {
    /// Waits until every new node has caught up with its peers.
    AwaitCaughtUp,
    /// Waits until the old nodes have halted at a height.
    AwaitNodesAtHeight,
    /// Waits until the new nodes run.
    AwaitNodesRunning,
    /// Waits until a set may take over.
    AwaitPromotion,
    /// Waits until the node is deleted.
    AwaitRemoval,
    /// Waits for a person.
    AwaitApproval,
    /// Makes a set of nodes.
    CreateEntrants,
    /// Waits until the node, or every node, serves, and has the sidecar know it.
    MarkReady,
    /// Takes down the pod that is not at the grant.
    ReplacePod,
    /// Removes the set that served.
    RetireIncumbents,
    /// Runs a Job.
    RunJob,
    /// Asks the old nodes to halt at a height.
    SubmitHalt,
    /// Moves the Service to another set.
    SwitchTraffic,
}

impl TaskType {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::AwaitCaughtUp,
        Self::AwaitNodesAtHeight,
        Self::AwaitNodesRunning,
        Self::AwaitPromotion,
        Self::AwaitRemoval,
        Self::AwaitApproval,
        Self::CreateEntrants,
        Self::MarkReady,
        Self::ReplacePod,
        Self::RetireIncumbents,
        Self::RunJob,
        Self::SubmitHalt,
        Self::SwitchTraffic,
    ];

    /// The name in plans and recipes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AwaitCaughtUp => "await-caught-up",
            Self::AwaitNodesAtHeight => "await-nodes-at-height",
            Self::AwaitNodesRunning => "await-nodes-running",
            Self::AwaitPromotion => "await-promotion",
            Self::AwaitRemoval => "await-removal",
            Self::AwaitApproval => "await-approval",
            Self::CreateEntrants => "create-entrants",
            Self::MarkReady => "mark-ready",
            Self::ReplacePod => "replace-pod",
            Self::RetireIncumbents => "retire-incumbents",
            Self::RunJob => "run-job",
            Self::SubmitHalt => "submit-halt",
            Self::SwitchTraffic => "switch-traffic",
        }
    }

    /// The type of this name, if it is one of these.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|type_| type_.as_str() == name)
    }

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
