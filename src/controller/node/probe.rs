//! The first stage: reads the state from the stores, and asks the API server what no watch shows.

use std::time::Duration;

use super::context::{Failed, Node};
use super::decide::moves_to_unchecked_template;
use crate::api::Reason;
use crate::api::names::ANNOTATION_SKIP;
use crate::api::status::HISTORY_LIMIT;
use crate::apply::{Admission, node_objects};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::controller::record::found;
use crate::engine::{self, Plan, TaskState};
use crate::planner::node::NodeFacts;
use crate::planner::node::decide::removal_of;

/// A node before anything is decided in this reconcile.
#[must_use]
pub(super) struct Probed<'a> {
    pub(super) node: Node<'a>,
    pub(super) facts: NodeFacts,
    /// The stored plan, changed as the fleet or a person requests. The error is a plan that ends now and contains the
    /// reason.
    pub(super) plan: Result<Option<Plan>, Box<Plan>>,
    pub(super) answers: Answers,
}

/// What was asked of the API server and of the fleet, as far as the decision depends on it.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) asked: UnwatchedObjects,
    /// Why the API server does not take the template that the node would move to, in one sentence.
    pub(super) refused: Option<String>,
    /// True if the plan's tasks were changed to follow the fleet's list of hooks.
    pub(super) followed: bool,
    /// True if a person skipped one of the plan's tasks.
    pub(super) skipped: bool,
}

/// What no watch shows of a node.
#[derive(Default)]
pub(super) struct UnwatchedObjects {
    /// Why the spec cannot be carried out, in one sentence.
    pub(super) invalid: Option<String>,
    /// When to ask again why there is no pod.
    pub(super) again: Option<Duration>,
}

impl<'a> Node<'a> {
    pub(super) async fn probe(mut self) -> Result<Probed<'a>, Box<Failed<'a>>> {
        let mut plan = self.stored_plan();
        self.report.finished_tasks = found(&plan);
        let mut facts = self.facts();
        let mut answers = Answers::default();
        if self.stored.spec.is_ok()
            && let Ok(plan) = &mut plan
            && self.removal(&facts, plan.as_ref()).is_none()
        {
            match self.ask(plan).await {
                Ok(asked) => (facts, answers) = asked,
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(Probed { node: self, facts, plan, answers })
    }
}

impl Node<'_> {
    /// Asks what the decision about a node that stays depends on. Also returns the facts, which include the answers.
    async fn ask(&self, plan: &mut Option<Plan>) -> Result<(NodeFacts, Answers), ReconcileError> {
        let followed = plan.as_mut().is_some_and(|plan| self.follow_fleet(plan));
        node_objects::forget_unlabelled(&self.scope).await?;
        node_objects::check_template(&self.scope, &self.stored).await?;
        let again = node_objects::why_no_pod(&self.scope, &self.stored).await;
        let mut facts = self.facts();
        let skipped = if let Some(plan) = plan {
            self.skip(plan)
        } else {
            self.refuse_unknown_skip(None);
            false
        };
        let mut invalid = facts.wanted.as_ref().err().cloned();
        if invalid.is_none() && facts.live().is_none() && !facts.terminating {
            invalid = node_objects::foreign(&self.scope, &self.stored).await?;
            // Of the node's own StatefulSet, which no watch shows, this process learns here if it was just started.
            if self.facts().live().is_some() {
                node_objects::check_template(&self.scope, &self.stored).await?;
                facts = self.facts();
            }
        }
        let taken =
            || self.scope.caches.probes.no_pod.get(&self.stored.meta.uid).and_then(|known| known.taken);
        // A node that leaves continues to leave, whatever blocks its spec.
        let leaves = plan.as_ref().is_some_and(|plan| removal_of(plan).is_some());
        let invalid = invalid.or_else(taken).filter(|_| !leaves);
        let decision = self.decision(&facts, plan.as_ref(), invalid.as_deref());
        let refused = match &self.stored.spec {
            Ok(spec) if moves_to_unchecked_template(&facts, &decision) => {
                match node_objects::verdict(&self.scope, &self.stored, spec).await? {
                    Admission::Refused(sentence) => Some(sentence),
                    Admission::Admitted(()) => None,
                }
            }
            _ => None,
        };
        Ok((facts, Answers { asked: UnwatchedObjects { invalid, again }, refused, followed, skipped }))
    }

    /// Skips the task that the annotation names. Returns true if the plan changed.
    fn skip(&self, plan: &mut Plan) -> bool {
        let own = self.stored.meta.annotation(ANNOTATION_SKIP);
        let Some(task_id) = self.skipped_by_fleet(plan).or(own) else { return false };
        if plan.tasks.iter().any(|t| t.id == task_id && t.state == TaskState::Skipped) {
            return false;
        }
        match engine::skip(plan, task_id, &self.cx.registry, self.now) {
            Ok(()) => true,
            Err(engine::SkipRefused::NoSuchTask { .. }) => {
                self.refuse_unknown_skip(Some(plan));
                false
            }
            Err(refused) => {
                self.record(&Event::warning(Reason::SkipRefused, task_id, refused.to_string()));
                false
            }
        }
    }

    /// Reports an annotation of the node that names no task of its plan, nor of an earlier one: the annotation stays
    /// until somebody removes it, so that task may have been skipped. The fleet's annotation may name a task of
    /// another node.
    fn refuse_unknown_skip(&self, plan: Option<&Plan>) {
        let Some(task_id) = self.stored.meta.annotation(ANNOTATION_SKIP).filter(|id| !id.is_empty()) else {
            return;
        };
        let status = self.status();
        let of_plan = task_id.rsplit_once('-').map_or(task_id, |(plan, _)| plan);
        // The history is bounded, and a status that was lost has none.
        let is_whole = status.observed_generation > 0 && status.history.len() < HISTORY_LIMIT;
        let is_earlier = status.history.iter().any(|entry| entry.plan_id == of_plan)
            || (!is_whole && engine::id::is_plan_id(of_plan));
        if is_earlier && plan.is_none_or(|plan| plan.id != *of_plan) {
            return;
        }
        let its_plan = plan.map_or_else(String::new, |plan| format!("; its current plan is {}", plan.id));
        let note =
            format!("{task_id:?} is not a task of a plan of this node, and nothing is skipped{its_plan}");
        self.record(&Event::warning(Reason::SkipRefused, task_id, note));
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
