//! The second stage: decides what to do. Pure: the planner decides, on the facts and on what the first stage asked.

use std::sync::Arc;
use std::time::Duration;

use super::context::Node;
use super::probe::{Answers, Probed, UnwatchedObjects};
use crate::api::StatefulNodeSpec;
use crate::engine::Plan;
use crate::planner::node::decide::{is_rolling, removal};
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
    /// Ends and starts plans in one status write, and runs no task. Before a plan ends, its Jobs are deleted, and
    /// traffic
    /// that a given-up promotion moved is moved back.
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

impl<'a> Probed<'a> {
    pub(super) fn decide(self) -> Decided<'a> {
        let Self { node, facts, plan, answers } = self;
        let spec = match &node.stored.spec {
            Ok(spec) => spec.clone(),
            Err(sentence) => {
                let action = Action::RefuseSpec(sentence.clone());
                return Decided { node, action };
            }
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(ended) => return Decided { node, action: Action::EndStored(ended) },
        };
        let leaves = node.removal(&facts, plan.as_ref());
        let Answers { asked, refused, followed, skipped } = answers;
        let action = match leaves {
            Some(decision) => Action::ChangePlan { plan, facts: Box::new(facts), decision },
            None => node.decide_to_stay(plan, spec, facts, asked, refused, (followed, skipped)),
        };
        Decided { node, action }
    }
}

impl Node<'_> {
    /// The decision about a node that leaves: it skips the checks that only matter to a node that stays.
    pub(super) fn removal(&self, facts: &NodeFacts, plan: Option<&Plan>) -> Option<NodeDecision> {
        removal(facts, plan, self.now).filter(|decision| *decision != NodeDecision::Keep)
    }

    /// The decision about a node that stays, if the API server takes the template that it moves to.
    pub(super) fn decision(
        &self,
        facts: &NodeFacts,
        plan: Option<&Plan>,
        invalid: Option<&str>,
    ) -> NodeDecision {
        // The hooks before the replacement of a pod are in the fleet's spec.
        let fleet_spec_unreadable =
            || self.of_fleet.is_unreadable() && facts.staying_pod().is_some_and(|pod| pod.running);
        if invalid.is_some() || fleet_spec_unreadable() {
            NodeDecision::Keep
        } else {
            decide(facts, plan, self.now)
        }
    }

    fn decide_to_stay(
        &self,
        plan: Option<Plan>,
        spec: Arc<StatefulNodeSpec>,
        facts: NodeFacts,
        asked: UnwatchedObjects,
        refused: Option<String>,
        (followed, skipped): (bool, bool),
    ) -> Action {
        let UnwatchedObjects { invalid, again: ask_again } = asked;
        let decision = self.decision(&facts, plan.as_ref(), invalid.as_deref());
        if refused.is_none() && decision != NodeDecision::Keep {
            return Action::ChangePlan { plan, facts: Box::new(facts), decision };
        }
        let invalid = refused.or(invalid);
        if followed {
            return Action::StorePlan { plan, invalid };
        }
        if let Some(invalid) = invalid {
            return Action::Hold { plan, spec, is_terminating: facts.terminating, invalid };
        }
        Action::CarryOut(Box::new(CarryOut { plan, spec, facts, skipped, ask_again }))
    }
}

/// True if a decision moves the node to a template that the API server may refuse.
pub(super) fn moves_to_unchecked_template(facts: &NodeFacts, decision: &NodeDecision) -> bool {
    let recipe = match decision {
        NodeDecision::Keep => return false,
        NodeDecision::Start { recipe, .. } => Some(*recipe),
        NodeDecision::Supersede { next, .. } => *next,
    };
    recipe.is_some_and(is_rolling) && facts.can_render() && !facts.template_is_granted()
}
