//! Chooses the revision at which a missing node is created.

use super::child::ChildFacts;
use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::hooks::{hold_grants, is_before_rollout, is_step_full};
use crate::api::RolloutHash;

/// The rollout hash of the revision at which a missing node with this ordinal is created. `rollout_target` is that
/// of the active plan, if there is one.
#[must_use]
pub fn creation_revision<'a>(
    facts: &'a FleetFacts,
    ordinal: i32,
    rollout_target: Option<&'a RolloutTarget>,
) -> &'a RolloutHash {
    let target = match rollout_target {
        Some(RolloutTarget::Revision(target)) => target,
        Some(RolloutTarget::Own) | None => facts.steady_revision(),
    };
    // Before the first completion there is no other revision.
    let Some(current) = &facts.last_completed else { return target };
    // A revision that is not stored, for example because the API server rejects it, cannot be used.
    if !facts.is_known(target) {
        return current;
    }
    if current == target {
        return target;
    }
    if ordinal < facts.held_below() {
        return current;
    }
    // A fleet that is filled again after it was scaled to 0 has no node that an untested target could take down.
    if facts.scaled_to_zero && facts.children.iter().all(|c| c.spec_hash != *current || !c.ever_ready) {
        return target;
    }
    if facts.paused || is_step_full(facts, target) {
        return current;
    }
    // A node that is created at the target is granted the target. So it waits for the hooks before the rollout, and
    // while a failed hook holds grants.
    if is_before_rollout(facts) || rollout_target.is_some_and(|target| hold_grants(facts, target)) {
        return current;
    }
    // Starts at the end, where the recently created nodes are, so that enough of them are found early.
    let is_shaky = |c: &&ChildFacts| c.is_in_flight() || c.failed || !c.ever_ready;
    let room = usize::try_from(facts.max_unavailable).unwrap_or_default();
    let shaky = facts.children.iter().rev().filter(is_shaky).take(room).count();
    if shaky < room { target } else { current }
}
