//! The progress clock of a fleet that is filled without a rollout: for the first time, or again after it was scaled to
//! 0. Such a fleet can stall like a rollout, but has no plan and no rollout that would report it. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::{hooks, progress};
use crate::api::{Filling, NodeDeploymentStatus};

/// True if the fleet waits for nodes outside a rollout.
fn is_under_way(status: &NodeDeploymentStatus, facts: &FleetFacts) -> bool {
    let filling = status.last_completed_rollout_hash.is_empty() || status.scaled_to_zero;
    status.rollout.is_none() && filling && facts.replicas > 0 && !facts.terminating
}

/// True if the clock is stopped: the fleet is paused, or a hook runs, which has a clock of its own, or has failed.
fn is_stopped(facts: &FleetFacts) -> bool {
    facts.paused || hooks::stop_the_clock(facts)
}

/// Updates the clock: it restarts when one more node is updated or ready.
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
    let (score, stopped) = (progress::score(facts, rollout_target), is_stopped(facts));
    let ready = Some(progress::ready(facts, rollout_target));
    let begun = Filling {
        last_progress_at: now,
        best: score,
        best_ready: ready,
        total: facts.replicas,
        clock_stopped: stopped,
    };
    let mut filling = before.unwrap_or(begun);
    if filling.total != facts.replicas {
        // With another number of nodes, another score is possible; nodes that were removed are neither progress nor a
        // loss.
        filling.best = filling.best.min(score);
        filling.best_ready = filling.best_ready.min(ready);
    }
    let is_progress = score > filling.best || progress::is_more(ready, filling.best_ready);
    if is_progress || (filling.clock_stopped && !stopped) {
        filling.last_progress_at = now;
    }
    // A time in the future was written before the clock was set back.
    let last_progress_at = filling.last_progress_at.min(now);
    let (best, total) = (filling.best.max(score), facts.replicas);
    let best_ready = filling.best_ready.max(ready);
    status.filling = Some(Filling { last_progress_at, best, best_ready, total, clock_stopped: stopped });
}

/// When the filling counts as stalled without progress; `None` while its clock is stopped, or if there is none.
pub(super) fn stall_deadline(status: &NodeDeploymentStatus, facts: &FleetFacts) -> Option<DateTime<Utc>> {
    let filling = status.filling.as_ref().filter(|f| !f.clock_stopped && !is_stopped(facts))?;
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
    let named =
        named.into_iter().chain(progress::missing(facts, deployment, rollout_target, &[], now)).next();
    match named {
        Some(node) => format!("no progress: {}: {}: {}", node.name, node.reason, node.message),
        None => "no progress: the nodes are being created".to_owned(),
    }
}
