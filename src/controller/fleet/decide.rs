//! The second stage: what is to be done. The planner decides; only a name for a new set of nodes is asked for here.

use std::sync::Arc;

use super::context::Fleet;
use super::names::is_transient;
use super::observe::{Edits, Observed};
use crate::api::{HookRetry, SetName};
use crate::engine::Plan;
use crate::planner::fleet::report::Invalid;
use crate::planner::fleet::status::{is_stalled, rollout_target_of};
use crate::planner::fleet::{FleetDecision, FleetFacts, decide};

/// What is to be done about a fleet, and what that was decided on.
#[must_use]
pub(super) struct Decided<'a> {
    pub(super) fleet: Fleet<'a>,
    pub(super) facts: Arc<FleetFacts>,
    pub(super) action: Action,
}

/// What one reconcile does.
pub(super) enum Action {
    /// The stored plan ends: it cannot be carried out, or what is left of it says that it is done. The plan says which.
    EndStored(Box<Plan>),
    /// Plans end and begin in one write, and nothing else is done.
    ChangePlan {
        /// The stored plan.
        plan: Option<Plan>,
        /// How.
        decision: FleetDecision,
        /// The set that it makes, where it makes one.
        entrant: Option<SetName>,
    },
    /// A plan whose tasks are others by now is written, and nothing else is done.
    StorePlan {
        /// The plan.
        plan: Option<Plan>,
        /// The hooks that are tried again.
        retried: Option<HookRetry>,
    },
    /// Nothing: the fleet is being deleted, or it is not known which set serves.
    Wait(Stored),
    /// The plan is carried out, if there is an active one, and so is what applies beside it.
    CarryOut(Stored),
}

/// The plan that a fleet goes on with, if it has one.
pub(super) struct Stored {
    pub(super) plan: Option<Plan>,
    /// Whether a person skipped one of its tasks.
    pub(super) skipped: bool,
}

impl<'a> Observed<'a> {
    pub(super) async fn decide(self) -> Decided<'a> {
        let Self { mut fleet, mut facts, plan, edits } = self;
        let plan = match plan {
            Ok(plan) => plan,
            Err(ended) => return Decided { fleet, facts, action: Action::EndStored(ended) },
        };
        let status = fleet.scope.fleet.status.clone();
        let (rollout_target, stalled) = (rollout_target_of(&status), is_stalled(&status, &facts, fleet.now));
        let mut decision = decide(&facts, plan.as_ref(), &rollout_target, stalled);
        let mut entrant = fleet.name_for(&facts, &decision).await;
        if let Err(nameless) = entrant {
            // A set that cannot be named is not begun; all that has nothing to do with it goes on.
            let is_transient = is_transient(&nameless);
            fleet.scope.invalid = Some(Invalid { sentence: nameless.sentence, is_transient });
            facts = fleet.scope.facts();
            decision = decide(&facts, plan.as_ref(), &rollout_target, stalled);
            entrant = fleet.name_for(&facts, &decision).await;
        }
        let changes_plan = decision != FleetDecision::Keep;
        let action = match (entrant, edits) {
            (Ok(entrant), _) if changes_plan => {
                // With what was found out meanwhile of what is wanted.
                facts = fleet.scope.facts();
                Action::ChangePlan { plan, decision, entrant }
            }
            (_, Edits { retried, followed, .. }) if retried.is_some() || followed => {
                Action::StorePlan { plan, retried }
            }
            (_, Edits { skipped, .. }) if facts.terminating || facts.undecided.is_some() => {
                Action::Wait(Stored { plan, skipped })
            }
            (_, Edits { skipped, .. }) => Action::CarryOut(Stored { plan, skipped }),
        };
        Decided { fleet, facts, action }
    }
}
