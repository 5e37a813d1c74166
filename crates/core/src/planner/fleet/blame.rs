//! Determines whether a rollout's target causes a stall: a node was granted the target and does not become available
//! with it. Other causes do not count, such as a failed machine of another node or a pod that does not terminate. Pure.

use super::child::{ChildFacts, GrantTime};
use super::decision::{RolloutTarget, Strategy};
use super::facts::FleetFacts;
use super::sets::SetRollout;
use crate::api::Stage;

/// True if a node that was granted the target of an in-place rollout does not become available with it.
#[must_use]
pub fn in_place(facts: &FleetFacts, rollout_target: &RolloutTarget) -> bool {
    is_to_blame(facts, rollout_target, |child| !child.pod.available)
}

/// True if a new node does not reach the state that the rollout waits for: caught up or, under HardFork, running. While
/// the rollout only waits for its promotion, all new nodes have caught up. If they fall behind then, their source does
/// too.
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

/// True if a node is not available because of its grant: its pod was created for the grant, or cannot be created, and
/// its time is over. If the old pod does not terminate, or the new one is deleted, the target is not known to be the
/// cause. A node that was available with the target may be unavailable for any reason.
fn is_its_own(child: &ChildFacts) -> bool {
    child.grant.time == GrantTime::Over && (child.pod.available || !child.grant.is_proven)
}
