//! The second stage: what is to be done. The planner decides; what no watch shows is asked for here.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Failed, Node};
use super::observe::Observed;
use crate::api::names::ANNOTATION_SKIP;
use crate::api::{Reason, StatefulNodeSpec};
use crate::apply::{Admission, node_objects};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::engine::{self, Plan, TaskState};
use crate::planner::node::decide::{is_rolling, removal};
use crate::planner::node::{NodeDecision, NodeFacts, decide};

/// What is to be done about a node.
#[must_use]
pub(super) struct Decided<'a> {
    pub(super) node: Node<'a>,
    pub(super) action: Action,
}

/// What one reconcile does.
pub(super) enum Action {
    /// Nothing: the spec cannot be read, which the sentence says.
    RefuseSpec(String),
    /// The stored plan ends: it cannot be read. The plan says so.
    EndStored(Box<Plan>),
    /// Plans end and begin in one write, and nothing else is done.
    ChangePlan {
        /// The stored plan.
        plan: Option<Plan>,
        /// What that was decided on.
        facts: Box<NodeFacts>,
        /// How.
        decision: NodeDecision,
    },
    /// A plan whose tasks are others by now is written, and nothing else is done.
    StorePlan {
        /// The plan.
        plan: Option<Plan>,
        /// Why the spec cannot be carried out, in a sentence.
        invalid: Option<String>,
    },
    /// The spec cannot be carried out: the node takes nothing, and lets go of what it is to leave.
    Hold {
        /// The plan.
        plan: Option<Plan>,
        /// The spec.
        spec: Arc<StatefulNodeSpec>,
        /// Whether the node is being deleted.
        is_terminating: bool,
        /// Why, in a sentence.
        invalid: String,
    },
    /// The plan is carried out, if there is an active one, and so is what applies beside it.
    CarryOut(Box<CarryOut>),
}

/// What a node that goes on goes on with.
pub(super) struct CarryOut {
    pub(super) plan: Option<Plan>,
    pub(super) spec: Arc<StatefulNodeSpec>,
    pub(super) facts: NodeFacts,
    /// Whether a person skipped one of its tasks.
    pub(super) skipped: bool,
    /// When it is asked again why there is no pod.
    pub(super) ask_again: Option<Duration>,
}

/// What no watch shows of a node, and was asked for.
struct Checked {
    facts: NodeFacts,
    /// Why the spec cannot be carried out, in a sentence.
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
        // A node that leaves waits for nothing that only matters to one that stays.
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
        let decision =
            if invalid.is_some() { NodeDecision::Keep } else { decide(&facts, plan.as_ref(), self.now) };
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

    /// Asks for what no watch shows. Answers as well whether a person skipped a task of the plan.
    async fn check(&self, plan: Option<&mut Plan>) -> Result<(bool, Checked), ReconcileError> {
        node_objects::forget_unlabelled(&self.scope, &self.stored).await?;
        node_objects::check_template(&self.scope, &self.stored).await?;
        let ask_again = node_objects::why_no_pod(&self.scope, &self.stored).await;
        let facts = self.facts();
        let skipped = plan.is_some_and(|plan| self.skip(plan));
        let mut invalid = facts.wanted.as_ref().err().cloned();
        if invalid.is_none() && facts.live().is_none() && !facts.terminating {
            invalid = node_objects::foreign(&self.scope, &self.stored).await?;
        }
        let taken = || self.scope.memory.no_pod.get(&self.stored.meta.uid).and_then(|known| known.taken);
        let invalid = invalid.or_else(taken);
        Ok((skipped, Checked { facts, invalid, ask_again }))
    }

    /// Skips the task that the annotation names. Answers whether the plan changed.
    fn skip(&self, plan: &mut Plan) -> bool {
        let own = self.stored.meta.annotation(ANNOTATION_SKIP);
        let Some(task_id) = self.skipped_by_fleet(plan).or(own) else { return false };
        if plan.tasks.iter().any(|t| t.id == task_id && t.state == TaskState::Skipped) {
            return false;
        }
        match engine::skip(plan, task_id, &self.cx.registry, self.now) {
            Ok(()) => true,
            // The task of a plan that is over stays named until somebody removes the annotation.
            Err(engine::SkipRefused::PlanOver { .. }) => false,
            Err(refused) => {
                self.record(&Event::warning(Reason::SkipRefused, task_id, refused.to_string()));
                false
            }
        }
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
