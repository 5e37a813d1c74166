//! Records a failed plan in the status. What follows depends on the stage of its rollout. Pure.

use chrono::{DateTime, Utc};

use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::sets::{SetRollout, status::give_up};
use super::status::{end, reject, rollout_target_of, short};
use crate::api::{Ending, NodeDeploymentStatus, Stage};
use crate::engine::Plan;

/// Moves a failed plan into the history. Before the point of no return, its target is rejected, and its nodes stay
/// until a user requests something: they may hold days of work. While it promotes, the rollout holds. Once traffic was
/// switched, the promotion is done, and the old nodes are removed without a plan.
pub fn fail(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    plan: &Plan,
    reason: &str,
    now: DateTime<Utc>,
) {
    let stage = SetRollout::of(status).map(|set| set.stage);
    end(status, plan, Ending::Failed, reason, now);
    if stage == Some(Stage::Promoting) {
        return;
    }
    if stage != Some(Stage::Retiring) {
        give_up(status, facts, now);
        let requested = facts.requested == *plan.target_hash || plan.target_hash.is_empty();
        // If the desired target has changed since, it was never tried, and is not rejected.
        if requested || rollout_target_of(status) == RolloutTarget::Own {
            reject(status, facts, plan, Ending::Failed);
        }
    }
    status.rollout = None;
}

/// Why a promotion without an active plan is stuck, and how to continue it, in a sentence.
#[must_use]
pub fn why_held(status: &NodeDeploymentStatus, plan: Option<&Plan>) -> Option<String> {
    let rollout = SetRollout::of(status).filter(|set| set.stage == Stage::Promoting)?;
    let plan = plan.filter(|plan| !plan.is_active())?;
    Some(format!(
        "{}; the promotion of {} cannot be rolled back: fix the cause, then annotate windlass.dev/retry={}",
        plan.failure,
        short(&rollout.target),
        plan.id
    ))
}
