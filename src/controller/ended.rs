//! Compares two statuses of an object and finds the plans and tasks that ended in between.

use crate::api::{HistoryEntry, NodeDeploymentStatus, RawPlan, StatefulNodeStatus, StatefulSetRolloutStatus};
use crate::engine::{Plan, TaskRecord, TaskState};

/// A status that has a plan and a history.
pub trait Recorded {
    /// The current plan, if there is one.
    fn plan(&self) -> Option<&RawPlan>;
    /// The plans that ended, from `status.history`.
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

impl Recorded for StatefulSetRolloutStatus {
    fn plan(&self) -> Option<&RawPlan> {
        self.rollout.plan.as_ref()
    }

    fn history(&self) -> &[HistoryEntry] {
        &self.rollout.history
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

/// The plan in the status that is about to be written, and what was finished in the stored one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress<'a> {
    /// The plan that is written.
    pub plan: Option<&'a Plan>,
    /// The IDs of the tasks that were already over in the stored plan.
    pub finished_tasks: &'a [String],
}

/// The IDs of the tasks of a plan that are over.
pub fn tasks_over(plan: &Plan) -> Vec<String> {
    plan.tasks.iter().filter(|task| is_over(task)).map(|task| task.id.clone()).collect()
}

/// The plans and tasks that ended between two statuses, and whether a plan began.
#[derive(Debug, Default)]
pub struct Ended<'a> {
    /// The plans that ended.
    pub plans: Vec<&'a HistoryEntry>,
    /// The tasks that ended, all of [`Ended::plan`].
    pub tasks: Vec<&'a TaskRecord>,
    /// The plan in the later status.
    pub plan: Option<&'a Plan>,
    /// True if the earlier status does not have this plan.
    pub began: bool,
}

impl<'a> Ended<'a> {
    /// Compares a status with the one that replaced it.
    pub fn between(before: &impl Recorded, after: &'a impl Recorded, progress: Progress<'a>) -> Self {
        let Progress { plan, finished_tasks } = progress;
        let is_new =
            |entry: &&HistoryEntry| !before.history().iter().any(|known| known.plan_id == entry.plan_id);
        let tasks = plan.iter().flat_map(|plan| &plan.tasks);
        // A plan with a finished task cannot be new. The check avoids parsing the earlier plan in most reconciles.
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
