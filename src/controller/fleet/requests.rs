//! A person's request to skip a task.

use super::context::Fleet;
use crate::api::names::ANNOTATION_SKIP;
use crate::api::{Reason, TaskType};
use crate::engine::{self, Plan, SkipRefused, TaskState};
use crate::planner::fleet::requests::{Remark, may_be_of_a_node};

/// The task type that may be skipped on a node, where it concerns one pod, but not on a fleet, where it asserts that
/// every node serves.
const OF_NODES_ONLY: TaskType = TaskType::MarkReady;

impl Fleet<'_> {
    /// Skips the task that the annotation names, if it may be skipped. Returns true if the plan changed.
    pub(super) fn skip(&mut self, plan: &mut Plan) -> bool {
        let fleet = self.scope.fleet.clone();
        let Some(task_id) = fleet.meta.annotation(ANNOTATION_SKIP) else { return false };
        let named = plan.tasks.iter().find(|t| t.id == task_id);
        if !plan.is_active() {
            if named.is_some_and(|t| t.state != TaskState::Skipped) {
                let refused = SkipRefused::PlanOver { task_id: task_id.to_owned(), state: plan.state };
                self.refuse_skip(task_id, refused.to_string());
            }
            // The annotation stays until somebody removes it, so it may name a task of an earlier plan.
            return false;
        }
        if named.is_none() && may_be_of_a_node(&self.scope.spec, task_id) {
            return false;
        }
        if named.is_some_and(|t| t.state == TaskState::Skipped) {
            return false;
        }
        let what = named.map_or_else(|| "not a task of its plan".to_owned(), |t| t.type_.clone());
        let skipped = named
            .is_some_and(|task| !OF_NODES_ONLY.is(task))
            .then(|| engine::skip(plan, task_id, &self.cx.registry, self.now));
        let note = match skipped {
            Some(Ok(())) => return true,
            None | Some(Err(SkipRefused::NotSkippable { .. })) => format!(
                "{task_id} ({what}) is not skipped: only await-caught-up, await-nodes-at-height, hooks and custom \
                 tasks marked skippable can be skipped on a fleet; to skip a node's mark-ready, annotate the node"
            ),
            Some(Err(refused)) => refused.to_string(),
        };
        self.refuse_skip(task_id, note);
        false
    }

    /// Records that a task is not skipped, and why.
    fn refuse_skip(&mut self, task_id: &str, note: String) {
        self.report.remarks.push(Remark::of(Reason::SkipRefused, task_id, note));
    }
}
