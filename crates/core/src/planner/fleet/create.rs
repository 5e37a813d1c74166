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
    // A fleet that has no current revision yet has nothing else to offer.
    let Some(current) = &facts.last_completed else { return target };
    // What the API server refuses, or what is not stored for another reason, cannot be made.
    if !facts.is_known(target) {
        return current;
    }
    if current == target {
        return target;
    }
    if ordinal < facts.held_below() {
        return current;
    }
    // One that fills again from nothing has no node that an untried target could take down.
    if facts.scaled_to_zero && facts.children.iter().all(|c| c.spec_hash != *current || !c.ever_ready) {
        return target;
    }
    if facts.paused || is_step_full(facts, target) {
        return current;
    }
    // What is made at the target is granted it: that waits for what comes before the rollout, and for what holds it.
    if is_before_rollout(facts) || rollout_target.is_some_and(|target| hold_grants(facts, target)) {
        return current;
    }
    // From the end, where those are that were created a moment ago: as many as count are soon found.
    let is_shaky = |c: &&ChildFacts| c.is_in_flight() || c.failed || !c.ever_ready;
    let room = usize::try_from(facts.max_unavailable).unwrap_or_default();
    let shaky = facts.children.iter().rev().filter(is_shaky).take(room).count();
    if shaky < room { target } else { current }
}
