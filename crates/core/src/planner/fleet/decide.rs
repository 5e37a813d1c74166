//! Decides whether a rollout starts, and whether an active one is superseded, aborted or rolled back.

use super::decision::{Cause, FleetDecision, RolloutTarget, Start, Strategy};
use super::facts::FleetFacts;
use super::hooks::rolls_back;
use super::idle::{
    change, decide_without_plan, is_retried, nodes_at_other_revision, repair_in_place, rollout_to,
};
use super::{blame, sets};
use crate::api::{OnStall, RolloutHash, Stage};
use crate::engine::{Plan, PlanState};

/// Decides about a fleet. `plan` is the persisted plan, `rollout_target` its target. `stalled`: true if the rollout's
/// clock has run out.
#[must_use]
pub fn decide(
    facts: &FleetFacts,
    plan: Option<&Plan>,
    rollout_target: &RolloutTarget,
    stalled: bool,
) -> FleetDecision {
    if facts.terminating || facts.findings.undecided.is_some() {
        return FleetDecision::Keep;
    }
    match (plan.filter(|p| p.is_active()), facts.rollout.now.set()) {
        (Some(plan), Some(rollout)) => sets::decide::decide_with_active_plan(facts, plan, rollout, stalled),
        (Some(plan), None) => decide_with_active_plan(facts, plan, rollout_target, stalled),
        (None, Some(rollout)) if rollout.stage == Stage::Promoting => {
            sets::decide::resume(facts, plan, rollout)
        }
        (None, _) if let Some(cause) = facts.rollout.now.cause() => {
            resume_lost_rollout(facts, rollout_target, cause)
        }
        (None, _) if facts.spec.replicas == 0 => FleetDecision::Keep,
        (None, _) => repair_that_ended_badly(facts, plan).unwrap_or_else(|| decide_without_plan(facts, plan)),
    }
}

/// A rollout whose plan is lost continues with a new plan to the same target. Whether that target is still desired is
/// decided once that plan is active.
fn resume_lost_rollout(facts: &FleetFacts, rollout_target: &RolloutTarget, cause: Cause) -> FleetDecision {
    if facts.spec.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let strategy = facts.rollout.now.set().map_or(Strategy::InPlace, |rollout| rollout.strategy);
    match rollout_target {
        RolloutTarget::Revision(target) if facts.is_known(target) => FleetDecision::Start(Start {
            rollout_target: rollout_target.clone(),
            target: target.clone(),
            cause,
            strategy,
        }),
        // The target is lost, or its revision is no longer stored.
        RolloutTarget::Revision(_) => FleetDecision::Start(rollout_to(facts, facts.steady_revision(), cause)),
        RolloutTarget::Own => repair_in_place(facts, cause),
    }
}

fn decide_with_active_plan(
    facts: &FleetFacts,
    plan: &Plan,
    rollout_target: &RolloutTarget,
    stalled: bool,
) -> FleetDecision {
    if facts.is_aborted(plan) {
        let current = facts.record.last_completed.as_ref().filter(|_| facts.requests.abort_rolls_back);
        let current = current.filter(|current| **current != *plan.target_hash);
        return match current {
            Some(current) => FleetDecision::RollBack(rollout_to(facts, current, Cause::Superseded)),
            None => FleetDecision::Abort,
        };
    }
    if facts.spec.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    if plan.recipe == Strategy::GrowClaims.recipe() {
        return match change(facts) {
            FleetDecision::Start(start) if start.strategy != Strategy::GrowClaims => {
                FleetDecision::Supersede(start)
            }
            _ => FleetDecision::Keep,
        };
    }
    // Such a rollout waits for no window and no other fleet. If a node that serves has to be updated, another one begins.
    if facts.rollout.now.cause().is_some_and(Cause::only_creates)
        && let FleetDecision::Start(start) = change(facts)
    {
        return FleetDecision::Supersede(start);
    }
    let goal = facts.goal();
    let moved = match rollout_target {
        RolloutTarget::Revision(target) => target != goal,
        // While the desired target is rejected, a repair is not superseded.
        RolloutTarget::Own if facts.record.rejected.is_some() => false,
        // What last completed may be desired again while nodes hold what was rejected before; and before the first
        // completion, only the nodes show whether another revision is desired.
        RolloutTarget::Own => {
            let differs = facts.record.last_completed.as_ref().is_some_and(|completed| completed != goal);
            differs || nodes_at_other_revision(facts, goal).next().is_some()
        }
    };
    if moved && facts.findings.blocker.is_none() {
        return FleetDecision::Supersede(rollout_to(facts, goal, Cause::Superseded));
    }
    // A retry waits until the rollback is complete, unless the rollback is stalled and may never complete. A repair is
    // not superseded: the retry may be meant for the repair before it.
    if stalled && matches!(rollout_target, RolloutTarget::Revision(_)) && is_retried(facts) {
        return FleetDecision::Supersede(rollout_to(facts, &facts.requested, Cause::RetryRequested));
    }
    if facts.requests.restart.is_some() {
        let start = Start {
            rollout_target: rollout_target.clone(),
            target: RolloutHash::recorded_or_lost(plan.target_hash.as_str()),
            cause: Cause::RestartRequested,
            strategy: Strategy::InPlace,
        };
        return FleetDecision::Supersede(start);
    }
    let is_bad =
        || stalled && facts.spec.on_stall == OnStall::Rollback && blame::in_place(facts, rollout_target);
    if (is_bad() || rolls_back(facts, rollout_target))
        && facts.record.rejected.is_none()
        && let Some(current) = &facts.record.last_completed
        && *current != *plan.target_hash
        && matches!(rollout_target, RolloutTarget::Revision(_))
    {
        return FleetDecision::RollBack(rollout_to(facts, current, Cause::Superseded));
    }
    FleetDecision::Keep
}

/// The decision after a repair that failed or was aborted while another target is rejected: like every other plan, it
/// starts again only on a retry. `None` if there was no such repair, or it completed.
fn repair_that_ended_badly(facts: &FleetFacts, plan: Option<&Plan>) -> Option<FleetDecision> {
    let rejected = facts.record.rejected.as_ref()?;
    let is_the_repair = |plan: &&Plan| plan.id == *rejected.plan_id && plan.target_hash != rejected.hash;
    plan.filter(is_the_repair).filter(|plan| plan.state != PlanState::Complete)?;
    if facts.requests.restart.is_some() {
        return Some(repair_in_place(facts, Cause::RestartRequested));
    }
    Some(if is_retried(facts) { repair_in_place(facts, Cause::RetryRequested) } else { FleetDecision::Keep })
}
