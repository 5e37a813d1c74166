//! The second stage: decides what to do. The planner decides; this stage reads from the API server what no watch shows.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Failed, Node};
use super::observe::Observed;
use crate::api::names::ANNOTATION_SKIP;
use crate::api::status::HISTORY_LIMIT;
use crate::api::{Reason, StatefulNodeSpec};
use crate::apply::{Admission, node_objects};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::engine::{self, Plan, TaskState};
use crate::planner::node::decide::{is_rolling, removal, removal_of};
use crate::planner::node::{NodeDecision, NodeFacts, decide};

/// The decision about a node.
#[must_use]
pub(super) struct Decided<'a> {
    pub(super) node: Node<'a>,
    pub(super) action: Action,
}

/// What the reconcile does.
pub(super) enum Action {
    /// Nothing, because the spec cannot be read. The text is the reason, in one sentence.
    RefuseSpec(String),
    /// Ends the stored plan, because it cannot be read. The plan contains the reason.
    EndStored(Box<Plan>),
    /// Ends and starts plans in one status write, and does nothing else.
    ChangePlan {
        /// The stored plan.
        plan: Option<Plan>,
        /// The facts that the decision is based on.
        facts: Box<NodeFacts>,
        /// The decision.
        decision: NodeDecision,
    },
    /// Writes the plan with changed tasks, and does nothing else.
    StorePlan {
        plan: Option<Plan>,
        /// Why the spec cannot be carried out, in one sentence.
        invalid: Option<String>,
    },
    /// The spec cannot be carried out: the node applies nothing, except that it releases claims that are to be
    /// retained.
    Hold {
        plan: Option<Plan>,
        spec: Arc<StatefulNodeSpec>,
        /// True if the node is being deleted.
        is_terminating: bool,
        /// Why the spec cannot be carried out, in one sentence.
        invalid: String,
    },
    /// Carries out the active plan, if there is one, and applies what is independent of it.
    CarryOut(Box<CarryOut>),
}

/// The input of [`Action::CarryOut`].
pub(super) struct CarryOut {
    pub(super) plan: Option<Plan>,
    pub(super) spec: Arc<StatefulNodeSpec>,
    pub(super) facts: NodeFacts,
    /// True if a person skipped one of the plan's tasks.
    pub(super) skipped: bool,
    /// When to ask again why there is no pod.
    pub(super) ask_again: Option<Duration>,
}

/// What no watch shows of a node, read from the API server.
struct Checked {
    facts: NodeFacts,
    /// Why the spec cannot be carried out, in one sentence.
    invalid: Option<String>,
    ask_again: Option<Duration>,
}

impl<'a> Observed<'a> {
    pub(super) async fn decide(self) -> Result<Decided<'a>, Box<Failed<'a>>> {
        let Self { node, facts, plan } = self;
        let spec = match &node.stored.spec {
            Ok(spec) => spec.clone(),
            Err(sentence) => {
                let action = Action::RefuseSpec(sentence.clone());
                return Ok(Decided { node, action });
            }
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(ended) => return Ok(Decided { node, action: Action::EndStored(ended) }),
        };
        // A node that leaves skips the checks that only matter to a node that stays.
        if let Some(decision) = removal(&facts, plan.as_ref(), node.now).filter(|d| *d != NodeDecision::Keep)
        {
            let action = Action::ChangePlan { plan, facts: Box::new(facts), decision };
            return Ok(Decided { node, action });
        }
        match node.decide_to_stay(plan, spec).await {
            Ok(action) => Ok(Decided { node, action }),
            Err(error) => Err(node.failed(error)),
        }
    }
}

impl Node<'_> {
    async fn decide_to_stay(
        &self,
        mut plan: Option<Plan>,
        spec: Arc<StatefulNodeSpec>,
    ) -> Result<Action, ReconcileError> {
        let followed = plan.as_mut().is_some_and(|plan| self.follow_fleet(plan));
        let (skipped, Checked { facts, mut invalid, ask_again }) = self.check(plan.as_mut()).await?;
        // Whatever is in the way of what the spec says, a node that leaves goes on leaving.
        if plan.as_ref().is_some_and(|plan| removal_of(plan).is_some()) {
            invalid = None;
        }
        // What comes before a pod is replaced is in the fleet's spec.
        let is_blind = || self.of_fleet.is_unreadable() && facts.staying_pod().is_some_and(|pod| pod.running);
        let decision = if invalid.is_some() || is_blind() {
            NodeDecision::Keep
        } else {
            decide(&facts, plan.as_ref(), self.now)
        };
        if moves_to_unchecked_template(&facts, &decision)
            && let Admission::Refused(sentence) =
                node_objects::verdict(&self.scope, &self.stored, &spec).await?
        {
            invalid = Some(sentence);
        } else if decision != NodeDecision::Keep {
            return Ok(Action::ChangePlan { plan, facts: Box::new(facts), decision });
        }
        if followed {
            return Ok(Action::StorePlan { plan, invalid });
        }
        if let Some(invalid) = invalid {
            return Ok(Action::Hold { plan, spec, is_terminating: facts.terminating, invalid });
        }
        Ok(Action::CarryOut(Box::new(CarryOut { plan, spec, facts, skipped, ask_again })))
    }

    /// Reads what no watch shows. Also returns true if a person skipped a task of the plan.
    async fn check(&self, plan: Option<&mut Plan>) -> Result<(bool, Checked), ReconcileError> {
        node_objects::forget_unlabelled(&self.scope).await?;
        node_objects::check_template(&self.scope, &self.stored).await?;
        let ask_again = node_objects::why_no_pod(&self.scope, &self.stored).await;
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
        let taken = || self.scope.memory.no_pod.get(&self.stored.meta.uid).and_then(|known| known.taken);
        let invalid = invalid.or_else(taken);
        Ok((skipped, Checked { facts, invalid, ask_again }))
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
    /// until somebody removes it, so that task may have been skipped. What the fleet's annotation names may be a task of
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
        let its_plan = plan.map_or_else(String::new, |plan| format!("; its plan is {}", plan.id));
        let note = format!("{task_id:?} is no task of a plan of this node, and nothing is skipped{its_plan}");
        self.record(&Event::warning(Reason::SkipRefused, task_id, note));
    }
}

fn moves_to_unchecked_template(facts: &NodeFacts, decision: &NodeDecision) -> bool {
    let recipe = match decision {
        NodeDecision::Keep => return false,
        NodeDecision::Start { recipe, .. } => Some(*recipe),
        NodeDecision::Supersede { next, .. } => *next,
    };
    recipe.is_some_and(is_rolling) && facts.can_render() && !facts.template_is_granted()
}
