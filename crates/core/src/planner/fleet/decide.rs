//! Decides whether a rollout starts, and whether one under way is superseded, aborted or rolled back.

use super::decision::{Cause, FleetDecision, Scope, Start, Strategy};
use super::facts::FleetFacts;
use super::hooks::rolls_back;
use super::idle::{idle, is_retried, others, own, to};
use super::sets;
use crate::api::{RolloutHash, Stage};
use crate::engine::{Plan, PlanState};

/// Decides. `plan` is the persisted plan, `scope` where it goes, `stalled` whether its clock has run out.
#[must_use]
pub fn decide(facts: &FleetFacts, plan: Option<&Plan>, scope: &Scope, stalled: bool) -> FleetDecision {
    if facts.terminating || facts.undecided.is_some() {
        return FleetDecision::Keep;
    }
    match (plan.filter(|p| p.is_active()), &facts.set_rollout) {
        (Some(plan), Some(rollout)) => sets::decide::during(facts, plan, rollout, stalled),
        (Some(plan), None) => during(facts, plan, scope, stalled),
        (None, Some(rollout)) if rollout.stage == Stage::Promoting => {
            sets::decide::resume(facts, plan, rollout)
        }
        (None, _) if let Some(cause) = facts.under_way => without_plan(facts, scope, cause),
        (None, _) if facts.replicas == 0 => FleetDecision::Keep,
        (None, _) => repair_that_ended_badly(facts, plan).unwrap_or_else(|| idle(facts)),
    }
}

/// A rollout whose plan is lost goes on by another, to where it went; whether that is still wanted is decided then.
fn without_plan(facts: &FleetFacts, scope: &Scope, cause: Cause) -> FleetDecision {
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let strategy = facts.set_rollout.as_ref().map_or(Strategy::InPlace, |rollout| rollout.strategy);
    match scope {
        Scope::Target(target) if facts.is_known(target) => {
            FleetDecision::Start(Start { scope: scope.clone(), target: target.clone(), cause, strategy })
        }
        // Nobody knows any more where it went, or could carry that out.
        Scope::Target(_) => FleetDecision::Start(to(facts, facts.steady_revision(), cause)),
        Scope::Own => own(facts, cause),
    }
}

fn during(facts: &FleetFacts, plan: &Plan, scope: &Scope, stalled: bool) -> FleetDecision {
    if facts.is_aborted(plan) {
        return FleetDecision::Abort;
    }
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let goal = facts.goal();
    let moved = match scope {
        Scope::Target(target) => target != goal,
        // What drifted is put right first only as long as nothing else is wanted.
        Scope::Own if facts.rejected.is_some() => false,
        // Where nothing completed yet, what else is wanted shows on the nodes alone.
        Scope::Own if facts.last_completed.is_none() => others(facts, goal).next().is_some(),
        Scope::Own => facts.last_completed != *goal,
    };
    if moved && facts.invalid.is_none() {
        return FleetDecision::Supersede(to(facts, goal, Cause::Superseded));
    }
    // What is tried again comes after the way back, unless that stands still and may never end. A repair goes first: what
    // is asked to be tried again may be the repair before it.
    if stalled && matches!(scope, Scope::Target(_)) && is_retried(facts) {
        return FleetDecision::Supersede(to(facts, &facts.requested, Cause::RetryRequested));
    }
    if facts.restart_request.is_some() {
        let start = Start {
            scope: scope.clone(),
            target: RolloutHash::recorded_or_lost(plan.target_hash.as_str()),
            cause: Cause::RestartRequested,
            strategy: Strategy::InPlace,
        };
        return FleetDecision::Supersede(start);
    }
    if ((stalled && facts.on_stall == crate::api::OnStall::Rollback) || rolls_back(facts))
        && facts.rejected.is_none()
        && let Some(current) = &facts.last_completed
        && *current != *plan.target_hash
        && matches!(scope, Scope::Target(_))
    {
        return FleetDecision::RollBack(to(facts, current, Cause::Superseded));
    }
    FleetDecision::Keep
}

/// What is decided after a repair that failed or was aborted while another target is rejected: it waits to be asked for
/// again, as every other plan does. `None` where it is over with that, or there was none.
fn repair_that_ended_badly(facts: &FleetFacts, plan: Option<&Plan>) -> Option<FleetDecision> {
    let rejected = facts.rejected.as_ref()?;
    let is_the_repair = |plan: &&Plan| plan.id == *rejected.plan_id && plan.target_hash != rejected.hash;
    plan.filter(is_the_repair).filter(|plan| plan.state != PlanState::Complete)?;
    if facts.restart_request.is_some() {
        return Some(own(facts, Cause::RestartRequested));
    }
    Some(if is_retried(facts) { own(facts, Cause::RetryRequested) } else { FleetDecision::Keep })
}
