//! Decides what happens to a rollout that creates a set of nodes when the target changes. The table is in
//! `docs/explanation/strategy-blue-green.md`.

use super::super::blame;
use super::super::decision::{Cause, FleetDecision, Start, Strategy};
use super::super::facts::FleetFacts;
use super::super::hooks::rolls_back;
use super::super::idle::{change, rollout_to};
use super::rollout::SetRollout;
use super::stage::has_switched;
use crate::api::{HookPoint, OnStall, Stage};
use crate::engine::{Plan, held_by};
use crate::planner::hooks::{is_left_at, point_of};

/// Decides about an active rollout that creates a set. `stalled`: true if its clock has run out.
#[must_use]
pub fn decide_with_active_plan(
    facts: &FleetFacts,
    plan: &Plan,
    rollout: &SetRollout,
    stalled: bool,
) -> FleetDecision {
    match rollout.stage {
        // The target is the persisted one, and everything else waits until traffic is switched.
        Stage::Promoting => promoting(facts, plan, rollout),
        Stage::Retiring => retiring(facts, plan, rollout),
        _ => before_promotion(facts, plan, rollout, stalled),
    }
}

/// A promotion whose plan has failed holds: it can be neither rolled back nor abandoned. Only if a user retries the
/// failed plan does it continue, with a new plan to the same target.
#[must_use]
pub fn resume(facts: &FleetFacts, plan: Option<&Plan>, rollout: &SetRollout) -> FleetDecision {
    if plan.is_none_or(|plan| !facts.is_retried(&plan.id)) {
        return FleetDecision::Keep;
    }
    FleetDecision::Resume(Start {
        rollout_target: rollout.rollout_target(),
        target: rollout.target.clone(),
        cause: Cause::RetryRequested,
        strategy: rollout.strategy,
    })
}

/// The promotion is done once traffic is switched, so the next rollout need not wait for the old nodes to be removed.
fn retiring(facts: &FleetFacts, plan: &Plan, rollout: &SetRollout) -> FleetDecision {
    if facts.spec.replicas == 0 {
        return FleetDecision::Keep;
    }
    // A repair or a restart waits for the remaining hooks of the promotion. Another target does not.
    let is_same = |start: &Start| start.target == rollout.target && is_left_at(plan, HookPoint::AfterRollout);
    match change(facts) {
        FleetDecision::Start(start) if is_same(&start) => FleetDecision::Keep,
        FleetDecision::Start(start) => FleetDecision::CompleteAndStart(start),
        _ => FleetDecision::Keep,
    }
}

/// True if traffic that was switched may be moved back: hooks at `AfterPromotion` are left, so the old set still
/// exists. The old nodes of a HardFork have halted and do not serve again.
#[must_use]
pub fn may_go_back(plan: &Plan, strategy: Strategy) -> bool {
    has_switched(plan) && is_left_at(plan, HookPoint::AfterPromotion) && strategy == Strategy::BlueGreen
}

/// True if a promotion is stuck at a hook that failed after the switch. It would never finish by itself, so another
/// target supersedes it. Traffic is first moved back to the old set, which still exists.
#[must_use]
pub fn remains_after_switch(plan: &Plan, rollout: &SetRollout) -> bool {
    let failed = held_by(plan).and_then(point_of);
    failed == Some(HookPoint::AfterPromotion) && may_go_back(plan, rollout.strategy)
}

fn promoting(facts: &FleetFacts, plan: &Plan, rollout: &SetRollout) -> FleetDecision {
    if !may_go_back(plan, rollout.strategy) {
        return FleetDecision::Keep;
    }
    if facts.is_aborted(plan) {
        return FleetDecision::Abort;
    }
    // Only an abort by a user moves traffic to nodes that are not available.
    if !old_set_serves(facts) {
        return FleetDecision::Keep;
    }
    if rolls_back(facts, &rollout.rollout_target()) && facts.record.rejected.is_none() {
        return FleetDecision::CancelAfterFailure;
    }
    // A new target counts only if this promotion is stuck at a failed hook. Another strategy alone is no target.
    let is_stuck =
        remains_after_switch(plan, rollout) && *facts.goal() != rollout.target && !facts.spec.paused;
    elsewhere(facts, rollout).filter(|_| is_stuck).unwrap_or(FleetDecision::Keep)
}

/// True if every node of the set that served before exists and is available. Traffic may be moved back to it.
fn old_set_serves(facts: &FleetFacts) -> bool {
    facts.missing().is_empty() && facts.wanted().all(|child| child.pod.available && !child.terminating)
}

/// The decision that supersedes a rollout that can be rolled back, if the target has changed.
fn elsewhere(facts: &FleetFacts, rollout: &SetRollout) -> Option<FleetDecision> {
    if facts.findings.blocker.is_some() {
        return None;
    }
    let goal = facts.goal();
    let strategy = facts.strategy_for(goal);
    if strategy == Strategy::InPlace && facts.record.last_completed == *goal {
        return Some(FleetDecision::CancelToCurrent);
    }
    let is_other = *goal != rollout.target || strategy != rollout.strategy;
    is_other.then(|| FleetDecision::Supersede(rollout_to(facts, goal, Cause::Superseded)))
}

fn before_promotion(facts: &FleetFacts, plan: &Plan, rollout: &SetRollout, stalled: bool) -> FleetDecision {
    if facts.is_aborted(plan) {
        return FleetDecision::Abort;
    }
    if facts.spec.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    if let Some(decision) = elsewhere(facts, rollout) {
        return decision;
    }
    let is_bad = || stalled && facts.spec.on_stall == OnStall::Rollback && blame::of_set(facts, rollout);
    if (is_bad() || rolls_back(facts, &rollout.rollout_target())) && facts.record.rejected.is_none() {
        return FleetDecision::CancelAfterFailure;
    }
    FleetDecision::Keep
}
