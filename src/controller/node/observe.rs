//! The first stage: reads the state from the stores, without requests.

use super::context::Node;
use crate::controller::record::found;
use crate::engine::Plan;
use crate::planner::node::NodeFacts;

/// A node as it was when the reconcile began.
#[must_use]
pub(super) struct Observed<'a> {
    pub(super) node: Node<'a>,
    pub(super) facts: NodeFacts,
    /// The stored plan. The error is a plan that ends now and contains the reason.
    pub(super) plan: Result<Option<Plan>, Box<Plan>>,
}

impl<'a> Node<'a> {
    pub(super) fn observe(mut self) -> Observed<'a> {
        let plan = self.stored_plan();
        self.report.finished_tasks = found(&plan);
        Observed { facts: self.facts(), plan, node: self }
    }

    /// The persisted plan. If it cannot be read and is not known to be over, the error is a failed plan with the
    /// reason.
    pub(super) fn stored_plan(&self) -> Result<Option<Plan>, Box<Plan>> {
        let Some(raw) = &self.status().plan else { return Ok(None) };
        let sentence = match raw.parse() {
            Ok(plan) => return Ok(Some(plan)),
            Err(sentence) => sentence,
        };
        if raw.is_over() {
            return Ok(None);
        }
        Err(Box::new(raw.failed(&self.stored.meta.uid, &sentence, self.now)))
    }
}
