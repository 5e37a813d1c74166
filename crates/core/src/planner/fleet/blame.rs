//! Whether a rollout's target is to blame for a standstill: a node was given it and does not become available with it.
//! Nothing else is its fault: not a machine that dies under another node, nor a pod that does not end. Pure.

use super::child::{ChildFacts, GrantTime};
use super::decision::{RolloutTarget, Strategy};
use super::facts::FleetFacts;
use super::sets::SetRollout;
use crate::api::Stage;

/// True if a node that was given the target of a rollout in place does not become available with it.
#[must_use]
pub fn in_place(facts: &FleetFacts, rollout_target: &RolloutTarget) -> bool {
    is_to_blame(facts, rollout_target, |child| !child.pod.available)
}

/// True if a new node does not come to what the rollout waits for: that it has caught up or, under HardFork, runs. Where only
/// a promotion is waited for, all have caught up: if they fall behind, so does what they follow.
#[must_use]
pub fn of_set(facts: &FleetFacts, rollout: &SetRollout) -> bool {
    let view = facts.as_set(&rollout.entrant);
    is_to_blame(&view, &rollout.rollout_target(), |child| match rollout.strategy {
        Strategy::HardFork => !view.runs(child, &rollout.target),
        _ if rollout.stage == Stage::AwaitingPromotion => !child.pod.available,
        _ => !child.is_caught_up(),
    })
}

fn is_to_blame(
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    falls_short: impl Fn(&ChildFacts) -> bool,
) -> bool {
    let is_given = |child: &ChildFacts| {
        matches!(rollout_target, RolloutTarget::Revision(target) if child.spec_hash == *target)
            && facts.is_granted(child, rollout_target)
            && !(child.controller.status_outdated || child.terminating || child.leave.asked)
    };
    facts.wanted().any(|child| is_given(child) && is_its_own(child) && falls_short(child))
}

/// True if what a node lacks is due to what it was granted: its pod was created for that, or cannot be created, and has had
/// its time. Where the old pod does not end, or the new one is deleted, nothing is known of the target. A node that has
/// been available with it may be down for any reason.
fn is_its_own(child: &ChildFacts) -> bool {
    child.grant.time == GrantTime::Over && (child.pod.available || !child.grant.is_proven)
}
