//! What ended between two statuses of an object.

use crate::api::{HistoryEntry, NodeDeploymentStatus, RawPlan, StatefulNodeStatus};
use crate::engine::{Plan, TaskRecord, TaskState};

/// A status with a plan.
pub trait Recorded {
    /// The plan, if there is one.
    fn plan(&self) -> Option<&RawPlan>;
    /// The plans that ended.
    fn history(&self) -> &[HistoryEntry];
}

impl Recorded for NodeDeploymentStatus {
    fn plan(&self) -> Option<&RawPlan> {
        self.plan.as_ref()
    }

    fn history(&self) -> &[HistoryEntry] {
        &self.history
    }
}

impl Recorded for StatefulNodeStatus {
    fn plan(&self) -> Option<&RawPlan> {
        self.plan.as_ref()
    }

    fn history(&self) -> &[HistoryEntry] {
        &self.history
    }
}

/// The plan that a status is written with, beside the same plan as it was stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress<'a> {
    /// As it is written.
    pub plan: Option<&'a Plan>,
    /// The IDs of the tasks that were over before.
    pub finished_tasks: &'a [String],
}

/// The IDs of a plan's tasks that are over.
pub fn tasks_over(plan: &Plan) -> Vec<String> {
    plan.tasks.iter().filter(|task| is_over(task)).map(|task| task.id.clone()).collect()
}

/// What ended between two statuses, and the plan that began.
#[derive(Debug, Default)]
pub struct Ended<'a> {
    /// Plans.
    pub plans: Vec<&'a HistoryEntry>,
    /// Tasks, of the plan that the later status has.
    pub tasks: Vec<&'a TaskRecord>,
    /// That plan.
    pub plan: Option<&'a Plan>,
    /// Whether the earlier status did not have it.
    pub began: bool,
}

impl<'a> Ended<'a> {
    /// Compares two statuses, the second of which was written over the first.
    pub fn between(before: &impl Recorded, after: &'a impl Recorded, progress: Progress<'a>) -> Self {
        let Progress { plan, finished_tasks } = progress;
        let is_new =
            |entry: &&HistoryEntry| !before.history().iter().any(|known| known.plan_id == entry.plan_id);
        let tasks = plan.iter().flat_map(|plan| &plan.tasks);
        // Only one of which nothing is over may be new; the plan before is not read for any other.
        let may_be_new = |plan: &&Plan| plan.is_active() && !plan.tasks.iter().any(is_over);
        let known = |plan: &Plan| {
            let before = before.plan().and_then(|before| before.parse().ok());
            before.is_some_and(|before| before.id == plan.id)
        };
        Self {
            plans: after.history().iter().filter(is_new).collect(),
            tasks: tasks.filter(|task| is_over(task) && !finished_tasks.contains(&task.id)).collect(),
            plan,
            began: plan.filter(may_be_new).is_some_and(|plan| !known(plan)),
        }
    }
}

fn is_over(task: &TaskRecord) -> bool {
    matches!(task.state, TaskState::Complete | TaskState::Failed | TaskState::Skipped)
}
