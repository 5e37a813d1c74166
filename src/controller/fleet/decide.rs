//! The second stage: decides what to do. Pure: the planner decides, on the facts and on what the first stage asked.

use std::sync::Arc;

use super::context::Fleet;
use super::probe::{Edits, Probed};
use crate::api::{HookRetry, SetName};
use crate::engine::Plan;
use crate::planner::fleet::sets::naming::{NotNamed, SetNameAnswer};
use crate::planner::fleet::status::{is_stalled, rollout_target_of};
use crate::planner::fleet::{FleetDecision, FleetFacts, decide};

/// The decision about a fleet, and the facts that it is based on.
#[must_use]
pub(super) struct Decided<'a> {
    pub(super) fleet: Fleet<'a>,
    pub(super) facts: Arc<FleetFacts>,
    pub(super) action: Action,
}

/// What the reconcile does.
pub(super) enum Action {
    /// Ends the stored plan: it cannot be carried out, or the status shows that it is done. The plan says which.
    EndStored(Box<Plan>),
    /// Ends and starts plans in one status write, and runs no task. Before a plan ends, its Jobs are deleted, and traffic
    /// that a given-up promotion moved is moved back.
    ChangePlan {
        /// The stored plan.
        plan: Option<Plan>,
        /// The decision.
        decision: FleetDecision,
        /// The name of the new set, if the decision makes one.
        entrant: Option<SetName>,
    },
    /// Writes the plan with changed tasks, and does nothing else.
    StorePlan {
        plan: Option<Plan>,
        /// The hooks that are retried.
        retried: Option<HookRetry>,
    },
    /// Does not act, except that it retains what is to stay: the fleet is being deleted, or it is not known which set
    /// serves.
    Wait(Stored),
    /// Carries out the active plan, if there is one, and does what is independent of it.
    CarryOut(Stored),
}

/// The plan that a fleet continues with, if it has one.
pub(super) struct Stored {
    pub(super) plan: Option<Plan>,
    /// True if a person skipped one of the plan's tasks.
    pub(super) skipped: bool,
}

impl<'a> Probed<'a> {
    pub(super) fn decide(self) -> Decided<'a> {
        let Self { mut fleet, mut facts, plan, edits, set_name } = self;
        let plan = match plan {
            Ok(plan) => plan,
            Err(ended) => return Decided { fleet, facts, action: Action::EndStored(ended) },
        };
        let status = fleet.scope.fleet.status.clone();
        let (rollout_target, stalled) = (rollout_target_of(&status), is_stalled(&status, &facts, fleet.now));
        let decide = |facts: &FleetFacts| decide(facts, plan.as_ref(), &rollout_target, stalled);
        let mut decision = decide(&facts);
        let mut set = set_name.set_of(&facts, &decision, fleet.now);
        if let (Err(NotNamed), SetNameAnswer::None(blocker)) = (&set, &set_name) {
            // Without a name the new set is not started. Everything independent of it continues.
            fleet.scope.block(blocker.clone());
            facts = fleet.scope.facts();
            decision = decide(&facts);
            set = set_name.set_of(&facts, &decision, fleet.now);
        }
        let action = match (set, edits) {
            (Ok(set), _) if decision != FleetDecision::Keep => {
                Action::ChangePlan { plan, decision, entrant: set }
            }
            (_, Edits { retried, followed, .. }) if retried.is_some() || followed => {
                Action::StorePlan { plan, retried }
            }
            (_, Edits { skipped, .. }) if facts.terminating || facts.findings.undecided.is_some() => {
                Action::Wait(Stored { plan, skipped })
            }
            (_, Edits { skipped, .. }) => Action::CarryOut(Stored { plan, skipped }),
        };
        Decided { fleet, facts, action }
    }
}
