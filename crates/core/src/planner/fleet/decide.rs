//! Decides whether a rollout starts, and whether one under way is superseded, aborted or rolled back.

use super::decision::{Cause, FleetDecision, RolloutTarget, Start, Strategy};
use super::facts::FleetFacts;
use super::hooks::rolls_back;
use super::idle::{decide_without_plan, is_retried, nodes_at_other_revision, repair_in_place, rollout_to};
use super::sets;
use crate::api::{RolloutHash, Stage};
use crate::engine::{Plan, PlanState};

/// Decides. `plan` is the persisted plan, `rollout_target` where it goes, `stalled` whether its clock has run out.
#[must_use]
pub fn decide(
    facts: &FleetFacts,
    plan: Option<&Plan>,
    rollout_target: &RolloutTarget,
    stalled: bool,
) -> FleetDecision {
    if facts.terminating || facts.undecided.is_some() {
        return FleetDecision::Keep;
    }
    match (plan.filter(|p| p.is_active()), &facts.set_rollout) {
        (Some(plan), Some(rollout)) => sets::decide::decide_with_active_plan(facts, plan, rollout, stalled),
        (Some(plan), None) => decide_with_active_plan(facts, plan, rollout_target, stalled),
        (None, Some(rollout)) if rollout.stage == Stage::Promoting => {
            sets::decide::resume(facts, plan, rollout)
        }
        (None, _) if let Some(cause) = facts.under_way => resume_lost_rollout(facts, rollout_target, cause),
        (None, _) if facts.replicas == 0 => FleetDecision::Keep,
        (None, _) => repair_that_ended_badly(facts, plan).unwrap_or_else(|| decide_without_plan(facts)),
    }
}

/// A rollout whose plan is lost goes on by another, to where it went; whether that is still wanted is decided then.
fn resume_lost_rollout(facts: &FleetFacts, rollout_target: &RolloutTarget, cause: Cause) -> FleetDecision {
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let strategy = facts.set_rollout.as_ref().map_or(Strategy::InPlace, |rollout| rollout.strategy);
    match rollout_target {
        RolloutTarget::Revision(target) if facts.is_known(target) => FleetDecision::Start(Start {
            rollout_target: rollout_target.clone(),
            target: target.clone(),
            cause,
            strategy,
        }),
        // Nobody knows any more where it went, or could carry that out.
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
        return FleetDecision::Abort;
    }
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let goal = facts.goal();
    let moved = match rollout_target {
        RolloutTarget::Revision(target) => target != goal,
        // What drifted is put right first only as long as nothing else is wanted.
        RolloutTarget::Own if facts.rejected.is_some() => false,
        // Where nothing completed yet, what else is wanted shows on the nodes alone.
        RolloutTarget::Own if facts.last_completed.is_none() => {
            nodes_at_other_revision(facts, goal).next().is_some()
        }
        RolloutTarget::Own => facts.last_completed != *goal,
    };
    if moved && facts.invalid.is_none() {
        return FleetDecision::Supersede(rollout_to(facts, goal, Cause::Superseded));
    }
    // What is tried again comes after the way back, unless that stands still and may never end. A repair goes first: what
    // is asked to be tried again may be the repair before it.
    if stalled && matches!(rollout_target, RolloutTarget::Revision(_)) && is_retried(facts) {
        return FleetDecision::Supersede(rollout_to(facts, &facts.requested, Cause::RetryRequested));
    }
    if facts.restart_request.is_some() {
        let start = Start {
            rollout_target: rollout_target.clone(),
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
        && matches!(rollout_target, RolloutTarget::Revision(_))
    {
        return FleetDecision::RollBack(rollout_to(facts, current, Cause::Superseded));
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
        return Some(repair_in_place(facts, Cause::RestartRequested));
    }
    Some(if is_retried(facts) { repair_in_place(facts, Cause::RetryRequested) } else { FleetDecision::Keep })
}
