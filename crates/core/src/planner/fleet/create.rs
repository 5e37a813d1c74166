//! Chooses the revision at which a missing node is created, and when.

use super::blocker::Blocker;
use super::child::ChildFacts;
use super::decision::{RolloutTarget, Strategy};
use super::facts::FleetFacts;
use super::hooks::{asking, hold_grants, is_before_rollout, is_step_full};
use super::state::NodeState;
use crate::api::{Reason, RolloutHash, Stage};

/// The rollout hash of the revision at which a missing node with this ordinal is created now; `None` if it waits until the
/// wave has room for it at the target. `rollout_target` is that of the active plan, if there is one.
#[must_use]
pub fn creation_revision<'a>(
    facts: &'a FleetFacts,
    ordinal: i32,
    rollout_target: Option<&'a RolloutTarget>,
) -> Option<&'a RolloutHash> {
    let target = match rollout_target {
        Some(RolloutTarget::Revision(target)) => target,
        Some(RolloutTarget::Own) | None => facts.steady_revision(),
    };
    // A new fleet has no node to keep: none is created from a spec that is refused.
    let is_refused = matches!(
        facts.findings.blocker,
        Some(Blocker::Spec(_) | Blocker::TemplateRefused(_) | Blocker::Unanswered(_))
    );
    if facts.record.last_completed.is_none() && facts.children.is_empty() && is_refused {
        return None;
    }
    let lacks_objects = facts.rollout.gate.lacks_objects();
    // Before the first completion there is no other revision.
    let Some(current) = &facts.record.last_completed else { return (!lacks_objects).then_some(target) };
    // A revision that is not stored, for example because the API server rejects it, cannot be used.
    if !facts.is_known(target) || current == target || ordinal < facts.held_below() {
        return Some(current);
    }
    // A fleet that is filled again after it was scaled to 0 has no node that an untested target could take down.
    if facts.record.scaled_to_zero
        && !lacks_objects
        && facts.children.iter().all(|c| c.spec_hash != *current || !c.pod.ever_ready)
    {
        return Some(target);
    }
    if facts.spec.paused || facts.rollout.gate.is_closed() || is_step_full(facts, target) {
        return Some(current);
    }
    // A node that is created at the target is granted the target. So it waits for the hooks before the rollout, and
    // while a failed hook holds grants.
    if is_before_rollout(facts) || rollout_target.is_some_and(|target| hold_grants(facts, target)) {
        return Some(current);
    }
    // Starts at the end, where the recently created nodes are, so that enough of them are found early.
    let is_shaky = |c: &&ChildFacts| match c.state() {
        NodeState::NeverStarted => false,
        NodeState::InFlight(..) | NodeState::Terminating { .. } => true,
        NodeState::Drifted(_) | NodeState::AtRest(_) => c.pod.failed || !c.pod.ever_ready,
    };
    let room = usize::try_from(facts.spec.max_unavailable).unwrap_or_default();
    let shaky = facts.children.iter().rev().filter(is_shaky).take(room).count();
    if shaky < room {
        return Some(target);
    }
    // A lost node comes back at once, at what worked. A new one would be replaced right after its start: it waits, unless
    // it could wait for long.
    (was_there(facts, ordinal)
        || has_failed(facts, target)
        || facts.record.stalled
        || asking(facts).next().is_some())
    .then_some(current)
}

/// True if a missing node with this ordinal may be created now, and need not wait until others have become Ready. A node that was
/// lost need not: the others may need it to become Ready.
#[must_use]
pub fn may_start(facts: &FleetFacts, ordinal: i32) -> bool {
    // Until their height, the new nodes of a hard fork need not be Ready.
    let is_fork = facts.rollout.now.set().is_some_and(|set| {
        set.strategy == Strategy::HardFork && set.entrant == facts.set && set.stage != Stage::Retiring
    });
    let Some(most) = facts.spec.max_initializing.filter(|_| !is_fork) else { return true };
    let is_starting = |child: &&ChildFacts| {
        (!child.pod.ever_ready || child.is_at_first_start())
            && !child.terminating
            && !child.controller.suspended
            && child.state() != NodeState::NeverStarted
    };
    let starting = facts.wanted().filter(is_starting).count();
    was_there(facts, ordinal) || starting < usize::try_from(most).unwrap_or(1)
}

/// True if a missing node existed before.
fn was_there(facts: &FleetFacts, ordinal: i32) -> bool {
    ordinal < facts.record.existed || facts.wanted().any(|child| child.ordinal > ordinal)
}

/// True if a node cannot run the target. A pod that finds no machine, for example before its claims are bound, says nothing
/// about the target. Nor does a status from before the node was granted the target.
pub(super) fn has_failed(facts: &FleetFacts, target: &RolloutHash) -> bool {
    let is_of_target = |c: &&ChildFacts| c.spec_hash == *target && !c.controller.status_outdated;
    facts.wanted().filter(is_of_target).any(|c| c.pod.failed && !finds_no_machine(c))
}

/// True if a pod finds no machine. That may pass by itself.
pub(super) fn finds_no_machine(child: &ChildFacts) -> bool {
    child.health.problem.as_ref().is_some_and(|problem| problem.reason == Reason::Unschedulable.as_ref())
}
