//! Decides whether a rollout starts while none is active.

use super::child::ChildFacts;
use super::decision::{Cause, FleetDecision, RolloutTarget, Start, Strategy};
use super::facts::{FleetFacts, FleetKind};
use crate::api::{HookPoint, Rejected, RestartTime, RolloutHash};
use crate::engine::Plan;
use crate::planner::hooks::is_left_at;

/// True if a user requests a retry of the rejected target, and it can start.
pub(super) fn is_retried(facts: &FleetFacts) -> bool {
    facts.record.rejected.as_ref().and_then(Rejected::plan).is_some_and(|plan| facts.is_retried(&plan))
        && facts.findings.blocker.is_none()
}

/// The decision if no rollout is active. A rollout of the existing nodes also creates those that are missing. `last`: the plan
/// that ended last.
pub(super) fn decide_without_plan(facts: &FleetFacts, last: Option<&Plan>) -> FleetDecision {
    match change(facts) {
        FleetDecision::Keep => creation(facts, last).map_or(FleetDecision::Keep, FleetDecision::Start),
        decision => decision,
    }
}

/// The decision about the nodes that exist.
pub(super) fn change(facts: &FleetFacts) -> FleetDecision {
    if let Some(rejected) = &facts.record.rejected {
        if is_retried(facts) {
            return FleetDecision::Start(rollout_to(facts, &facts.requested, Cause::RetryRequested));
        }
        if facts.requests.restart.is_some() {
            return repair_in_place(facts, Cause::RestartRequested);
        }
        // A drift whose repair was aborted is not repaired again by itself.
        if facts.record.last_completed == RolloutHash::recorded(rejected.hash.as_str()) {
            return FleetDecision::Keep;
        }
        return drift(facts);
    }
    if facts.findings.blocker.is_some() {
        return drift(facts);
    }
    let goal = facts.goal();
    // The first creation of a fleet, and filling it again after it was scaled to 0, are not rollouts: they are complete
    // once that is observed.
    let filling = facts.record.last_completed.is_none()
        || (facts.record.scaled_to_zero && !facts.strategy_for(goal).creates_set());
    if facts.record.last_completed != *goal && !filling {
        let cause = match &facts.record {
            record if record.unrecorded => Cause::ChildDrift,
            record if record.differs_in_config_only => Cause::ConfigChanged,
            _ => Cause::TemplateChanged,
        };
        return FleetDecision::Start(rollout_to(facts, goal, cause));
    }
    if nodes_at_other_revision(facts, goal).next().is_some() {
        // Windlass issues no grant that does not match the revision in the node's spec, so the spec was edited.
        let edited = |c: &ChildFacts| {
            facts.held_by(c, facts.restart_of(c)).is_some_and(|held| c.grant.hash != held.hash)
        };
        let cause = if facts.record.unrecorded || nodes_at_other_revision(facts, goal).all(edited) {
            Cause::ChildDrift
        } else {
            Cause::TemplateChanged
        };
        return FleetDecision::Start(rollout_to(facts, goal, cause));
    }
    if facts.requests.restart.is_some() {
        return FleetDecision::Start(rollout_to(facts, goal, Cause::RestartRequested));
    }
    drift(facts)
}

/// The rollout that creates nodes, if hooks follow their creation. It is stored before the first of them exists: its plan is the
/// record that the hooks are due. `None` if no node is to be created, or no hook follows.
fn creation(facts: &FleetFacts, last: Option<&Plan>) -> Option<Start> {
    let (record, hooks) = (&facts.record, &facts.spec.creation_hooks);
    let start = |rollout_target, target: &RolloutHash, cause| {
        Some(Start { rollout_target, target: target.clone(), cause, strategy: Strategy::InPlace })
    };
    let of_goal = || RolloutTarget::Revision(facts.goal().clone());
    let Some(completed) = &record.last_completed else {
        let is_owed = || last.is_some_and(|plan| is_left_at(plan, HookPoint::AfterFirstCreation));
        let is_new = !facts.missing().is_empty() && (facts.children.is_empty() || is_owed());
        let is_due = is_new && record.rejected.is_none() && hooks.contains(&HookPoint::AfterFirstCreation);
        return start(of_goal(), facts.goal(), Cause::FirstCreation)
            .filter(|_| is_due && facts.is_known(facts.goal()));
    };
    // After the abort of a repair, new nodes are created without these hooks: a rollout would repair the others, too.
    let is_aborted = record.rejected.as_ref().is_some_and(|rejected| rejected.hash == completed.as_str());
    let is_due = facts.adds_nodes() && !is_aborted && hooks.contains(&HookPoint::AfterScaleUp);
    let (rollout_target, target) = if record.scaled_to_zero && record.rejected.is_none() {
        (of_goal(), facts.goal())
    } else {
        (RolloutTarget::Own, facts.steady_revision())
    };
    start(rollout_target, target, Cause::ScaledUp).filter(|_| is_due)
}

/// The nodes whose spec has another revision than this one, and one that is stored.
pub(super) fn nodes_at_other_revision<'a>(
    facts: &'a FleetFacts,
    goal: &'a RolloutHash,
) -> impl Iterator<Item = &'a ChildFacts> {
    facts.wanted().filter(move |c| facts.holds_known(c) && c.spec_hash != *goal)
}

pub(super) fn drift(facts: &FleetFacts) -> FleetDecision {
    if facts.spec.paused {
        return FleetDecision::Keep;
    }
    // A deleted pod is recreated at its previous revision, and after an abort pods keep what they run.
    if facts.kind == FleetKind::Pods && facts.is_rejected_by_abort() {
        return FleetDecision::Keep;
    }
    let exists = |c: &&ChildFacts| facts.kind == FleetKind::Nodes || c.pod.hash.is_some();
    match facts.wanted().filter(|c| !c.terminating).filter(exists).find_map(|c| drift_of(facts, c)) {
        Some(cause) => repair_in_place(facts, cause),
        None if facts.needs_growth() => repair_in_place(facts, Cause::ClaimsGrown),
        None => FleetDecision::Keep,
    }
}

/// Why a node outside a rollout is not what it should be; `None` if it is.
pub(super) fn drift_of(facts: &FleetFacts, child: &ChildFacts) -> Option<Cause> {
    let rollout_target = RolloutTarget::Own;
    if facts.is_granted(child, &rollout_target) {
        // The node's own controller repairs everything but its pod; the rollout waits for that and reports it.
        return child.pod.was_edited.then_some(Cause::ChildDrift);
    }
    // What it should run is not known, so neither is whether it has drifted.
    facts.target_for(child, &rollout_target)?;
    if !facts.holds_known(child) || child.state().is_drifted() {
        return Some(Cause::ChildDrift);
    }
    // It was granted the same revision before a restart of its own, or before one of the fleet that the partition held
    // back.
    let restart = facts.restart_of(child);
    let is_before = |at: Option<&RestartTime>| {
        restart != at && facts.held_by(child, at).is_some_and(|held| child.grant.hash == held.hash)
    };
    if is_before(facts.record.restarted_at.as_ref()) || is_before(child.restarts.told.as_ref()) {
        return Some(Cause::RestartRequested);
    }
    let was_granted_by_us =
        child.grant.hash.is_some() && (child.grant.hash == child.pod.hash || child.pod.hash.is_none());
    Some(if was_granted_by_us { Cause::OperatorDrift } else { Cause::ChildDrift })
}

/// A rollout of every node to a target.
pub(super) fn rollout_to(facts: &FleetFacts, target: &RolloutHash, cause: Cause) -> Start {
    let (rollout_target, strategy) = (RolloutTarget::Revision(target.clone()), facts.strategy_for(target));
    Start { rollout_target, target: target.clone(), cause, strategy }
}

pub(super) fn repair_in_place(facts: &FleetFacts, cause: Cause) -> FleetDecision {
    let target = facts.steady_revision().clone();
    let strategy = if cause == Cause::ClaimsGrown { Strategy::GrowClaims } else { Strategy::InPlace };
    FleetDecision::Start(Start { rollout_target: RolloutTarget::Own, target, cause, strategy })
}
