//! The progress clock of a fleet that is filled without a rollout: for the first time, or again after it was scaled to
//! 0. Such a fleet can stall like a rollout, but has no plan and no rollout that would report it. Pure.

use chrono::{DateTime, Utc};

use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::{clock, hooks, progress};
use crate::api::{NodeDeploymentStatus, ProgressClock};

/// True if the fleet waits for nodes outside a rollout.
fn is_under_way(status: &NodeDeploymentStatus, facts: &FleetFacts) -> bool {
    let filling = status.last_completed_rollout_hash.is_empty() || status.scaled_to_zero;
    status.rollout.is_none() && filling && facts.spec.replicas > 0 && !facts.terminating
}

/// True if the clock is stopped: the fleet is paused, objects that its template names do not exist, or a hook runs, which
/// has a clock of its own, or has failed.
fn is_stopped(facts: &FleetFacts) -> bool {
    facts.spec.paused || facts.rollout.gate.lacks_objects() || hooks::stop_the_clock(facts)
}

/// Updates the clock: it restarts when one more node is updated or ready.
pub(super) fn refresh(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    now: DateTime<Utc>,
) {
    let before = status.initial_fill.take();
    if !is_under_way(status, facts) {
        return;
    }
    let (score, is_stopped) = (progress::score(facts, rollout_target), is_stopped(facts));
    let ready = Some(progress::ready(facts, rollout_target));
    let begun = ProgressClock {
        last_progress_at: now,
        max_updated: score,
        max_ready: ready,
        total: facts.spec.replicas,
        progress_paused: is_stopped,
        not_counted_since: None,
    };
    let reading = clock::Reading { score, ready, is_stopped, is_unwatched: false };
    status.initial_fill = Some(clock::advance(before.unwrap_or(begun), facts, &reading, now));
}

/// When the filling counts as stalled without progress; `None` while its clock is stopped, or if there is none.
pub(super) fn stall_deadline(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let filling = status.initial_fill.as_ref().filter(|_| !is_stopped(facts))?;
    if facts.is_converged(&RolloutTarget::Revision(facts.steady_revision().clone())) {
        return None;
    }
    clock::runs_out(filling, facts, now).filter(|_| is_under_way(status, facts))
}

/// What it waits for, in a sentence: the worst of its nodes.
pub(super) fn waits_for(
    facts: &FleetFacts,
    deployment: &str,
    rollout_target: &RolloutTarget,
    now: DateTime<Utc>,
) -> String {
    let named = progress::unconverged(facts, rollout_target, None, &[], now);
    let named =
        named.into_iter().chain(progress::missing(facts, deployment, rollout_target, &[], now)).next();
    named.map_or_else(|| "the nodes are being created".to_owned(), |node| node.sentence())
}
