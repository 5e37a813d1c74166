//! The clock of a fleet that is filled without a rollout: for the first time, or again from nothing. It may stand still
//! as a rollout may, and there is no plan and no rollout that would say so. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::progress;
use crate::api::{Filling, NodeDeploymentStatus};

/// Whether nodes are waited for that no rollout is about.
fn is_under_way(status: &NodeDeploymentStatus, facts: &FleetFacts) -> bool {
    let filling = status.last_completed_rollout_hash.is_empty() || status.scaled_to_zero;
    status.rollout.is_none() && filling && facts.replicas > 0 && !facts.terminating
}

/// Brings the clock up to date: it goes on with one more node updated or ready, and stands while the fleet is paused.
pub(super) fn refresh(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    now: DateTime<Utc>,
) {
    let before = status.filling.take();
    if !is_under_way(status, facts) {
        return;
    }
    let (score, stopped) = (progress::score(facts, rollout_target), facts.paused);
    let begun = Filling { last_progress_at: now, best: score, total: facts.replicas, clock_stopped: stopped };
    let mut filling = before.unwrap_or(begun);
    if filling.total != facts.replicas {
        // Of another number of nodes another number can be done; what went away is neither progress nor loss.
        filling.best = filling.best.min(score);
    }
    if score > filling.best || (filling.clock_stopped && !stopped) {
        filling.last_progress_at = now;
    }
    // A time in the future was written by a clock that has since been set back.
    let last_progress_at = filling.last_progress_at.min(now);
    let (best, total) = (filling.best.max(score), facts.replicas);
    status.filling = Some(Filling { last_progress_at, best, total, clock_stopped: stopped });
}

/// When it counts as stalled if nothing moves; `None` while its clock stands, or there is none.
pub(super) fn stall_deadline(status: &NodeDeploymentStatus, facts: &FleetFacts) -> Option<DateTime<Utc>> {
    let filling = status.filling.as_ref().filter(|f| !f.clock_stopped && !facts.paused)?;
    let allowed = TimeDelta::seconds(facts.deadline_seconds);
    if facts.is_converged(&RolloutTarget::Revision(facts.steady_revision().clone())) {
        return None;
    }
    is_under_way(status, facts).then(|| filling.last_progress_at + allowed)
}

/// What it waits for, in a sentence: the worst of its nodes.
pub(super) fn why_stalled(
    facts: &FleetFacts,
    deployment: &str,
    rollout_target: &RolloutTarget,
    now: DateTime<Utc>,
) -> String {
    let named = progress::unconverged(facts, rollout_target, None, &[], now);
    let named = named.into_iter().chain(progress::missing(facts, deployment, &[], now)).next();
    match named {
        Some(node) => format!("no progress: {}: {}: {}", node.name, node.reason, node.message),
        None => "no progress: the nodes are being created".to_owned(),
    }
}
