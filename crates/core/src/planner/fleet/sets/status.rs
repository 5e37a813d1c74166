//! Records the beginning, the promotion and the end of a rollout that creates a set of nodes in the fleet's status.

use chrono::{DateTime, Utc};

use super::super::SetFacts;
use super::super::child::ChildFacts;
use super::super::decision::Strategy;
use super::super::facts::FleetFacts;
use super::rollout::SetRollout;
use super::stage;
use crate::api::ids::field;
use crate::api::status::RETIRING_LIMIT;
use crate::api::{Ending, HookPoint, NodeDeploymentStatus, RetiringSet, Rollout, SetName, Stage};
use crate::planner::hooks::is_left_at;

/// Records that the rollout that has just begun creates a set of this name.
pub fn begin(status: &mut NodeDeploymentStatus, facts: &FleetFacts, strategy: Strategy, entrant: &SetName) {
    let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let from = status.last_completed_rollout_hash.clone();
    let active = facts.set.to_string();
    // A set that left service and is desired again is not removed. The time at which it left service counts if it is
    // abandoned again.
    let left_service =
        status.retiring.iter().find(|set| *entrant == *set.set && set.has_served()).map(|set| set.since);
    status.retiring.retain(|set| *entrant != *set.set);
    let Some(rollout) = status.rollout.as_mut() else { return };
    // A paused fleet does not start Promoting: the spec may change before it is resumed. Neither does one that waits for a
    // window or for other fleets, nor one whose
    // BeforeRollout hooks are not finished, nor one whose traffic could not move: no way back would be left.
    let waits = facts.spec.paused
        || !rollout.waiting_for.is_empty()
        || facts.service.is_missing
        || plan.is_some_and(|plan| is_left_at(&plan, HookPoint::BeforeRollout));
    rollout.stage = if waits { Stage::CreatingEntrants } else { strategy.first_stage() };
    rollout.incumbent_set = active;
    let known = rollout.entrant_left_service_at.filter(|_| *entrant == *rollout.entrant_set);
    rollout.entrant_left_service_at = left_service.or(known);
    rollout.entrant_set = entrant.to_string();
    field(facts.spec.build_id.as_ref()).clone_into(&mut rollout.build_id);
    rollout.from_hash = from;
    if rollout.stage == Stage::Promoting {
        pass_no_return(status, facts);
    }
}

/// Records what the promotion is based on from now on, whatever the spec becomes.
pub fn pass_no_return(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    if let Some(rollout) = status.rollout.as_mut() {
        rollout.stage = Stage::Promoting;
        rollout.forced = false;
        if rollout.strategy == Strategy::HardFork.api_name() {
            rollout.halt_height = facts.spec.halt_height;
        }
    }
    spend_force(status, facts);
}

/// Records that a forced promotion, once it can no longer be rolled back, has used up the user's request.
fn spend_force(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    // A revision that is already active needs no promotion, and the request is not kept for the next time that it is
    // desired.
    if facts.requests.force_promote && status.last_completed() == facts.requested {
        status.spent_force_promote = facts.requested.to_string();
    }
    let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage == Stage::Promoting) else { return };
    if facts.requests.force_promote {
        rollout.forced = true;
        status.spent_force_promote = facts.requested.to_string();
    }
}

/// Records that traffic was switched: the new set is the active one, and its revision is complete.
pub fn switched(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    spend_force(status, facts);
    let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage != Stage::Retiring) else { return };
    rollout.stage = Stage::Retiring;
    rollout.last_progress_at = now;
    (rollout.max_updated, rollout.max_ready) = (i32::MIN, None);
    let (entrant, target) = (rollout.entrant_set.clone(), rollout.target_hash.clone());
    let (revision, build_id) = (rollout.target_revision.clone(), rollout.build_id.clone());
    let halt_height = rollout.halt_height;
    retire(
        status,
        RetiringSet {
            set: facts.set.to_string(),
            hash: facts.record.last_completed.clone().map(String::from).unwrap_or_default(),
            build_id: field(facts.record.active_build_id.as_ref()).to_owned(),
            since: now,
            unpromoted: false,
            served: false,
            halt_height,
        },
    );
    status.active_set = entrant;
    status.active_build_id = build_id;
    status.last_completed_rollout_hash = target;
    status.current_revision = revision;
    status.scaled_to_zero = false;
}

/// Records that traffic was moved back to the old set: the promotion may be rolled back again. The set that received
/// traffic in between gets its delay.
pub fn moved_back(status: &mut NodeDeploymentStatus, now: DateTime<Utc>) {
    if let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage == Stage::Promoting) {
        rollout.stage = Stage::AwaitingPromotion;
        rollout.entrant_left_service_at = Some(now);
    }
}

/// Abandons the rollout before its promotion: the new set is removed, and its claims stay. A set that served before
/// keeps the rest of its delay.
pub fn give_up(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    let Some(rollout) = SetRollout::of(status).filter(SetRollout::is_revocable) else { return };
    if rollout.entrant != facts.set {
        retire(status, rollout.given_up(now));
    }
}

fn retire(status: &mut NodeDeploymentStatus, set: RetiringSet) {
    status.retiring.retain(|known| known.set != set.set);
    status.retiring.push(set);
}

/// Updates the list of sets that are being removed: deleted sets are removed from it, and unaccounted sets are added.
pub fn refresh_retiring(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    let exists = |set: &str| facts.sets.get(set).is_some_and(|s| !s.is_gone());
    let entrant = status.rollout.as_ref().and_then(Rollout::entrant);
    let enters = |set: &str| entrant.as_ref().is_some_and(|entrant| *entrant == *set);
    status.retiring.retain(|set| facts.set != *set.set && !enters(&set.set) && exists(&set.set));
    // A time in the future was written before the clock was set back; the set would stay longer by that much. If its
    // nodes were asked to leave, its delay is over: what was done before they leave is not done a second time.
    for set in status.retiring.iter_mut().filter(|set| set.since > now) {
        let leaves = |set: &SetFacts| set.children.iter().any(|child| child.leave.asked);
        let delay = facts.removal_of(set) - set.since;
        let is_over = facts.sets.get(set.set.as_str()).is_some_and(leaves);
        set.since = if is_over { now - delay } else { now };
    }
    // After a failed plan the purpose of each set is not known: nothing is added until a user requests something. The
    // same holds while it is not known which set is active.
    let failed = status.rollout.is_none()
        && status.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::Failed));
    let failed = failed || facts.findings.undecided.is_some();
    let strays: Vec<&SetName> = facts
        .sets
        .iter()
        .filter(|(name, set)| {
            !failed
                && entrant != **name
                && !set.children.is_empty()
                && !status.retiring.iter().any(|r| **name == *r.set)
        })
        .map(|(name, _)| name)
        .collect();
    for name in strays {
        // It is not known whether it served, so it may have: its claims stay, and it gets its delay.
        let set = RetiringSet {
            set: name.to_string(),
            hash: String::new(),
            build_id: String::new(),
            since: now,
            unpromoted: false,
            served: false,
            halt_height: 0,
        };
        status.retiring.push(set);
    }
    // Beyond the limit, the oldest ones are removed at once.
    status.retiring.sort_by_key(|set| set.since);
    let beyond = status.retiring.len().saturating_sub(RETIRING_LIMIT);
    for set in status.retiring.iter_mut().take(beyond) {
        set.since = DateTime::UNIX_EPOCH;
    }
}

/// Updates the lowest height of the old nodes while they have to halt. A height that grows is progress. A new node may be
/// far below the others: it lowers the height, which is no progress, and the growth from there is. Nothing else lowers
/// it, so a node that restarts from an older state again and again makes no progress. The status still has to have the
/// number of nodes that were seen last.
pub fn refresh_height(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    let is_grown = facts.children.len() as i32 > status.replicas;
    if SetRollout::of(status).is_none_or(|set| !set.is_halting()) {
        return;
    }
    let Some(rollout) = status.rollout.as_mut() else { return };
    let says_nothing =
        |c: &&ChildFacts| !c.terminating && c.sidecar.as_ref().is_some_and(|s| s.height.is_none());
    let mute = || facts.children.iter().filter(says_nothing);
    // It replaces a deleted node: its own controller has not observed it yet.
    let is_replaced = mute().any(|c| c.controller.status_outdated && !c.pod.ever_ready);
    // As long as one of them reports no height, the lowest height is not known.
    let of_all = if mute().next().is_none() { stage::lowest_height(facts) } else { 0 };
    if is_grown || is_replaced {
        rollout.height = rollout.height.min(of_all);
    }
    // A node that reported a height before and reports none now, such as while its pod restarts, is left out.
    let height = if rollout.height == 0 { of_all } else { stage::lowest_height(facts) };
    if height > rollout.height {
        rollout.height = height;
        rollout.last_progress_at = now;
    }
}

/// Updates the status of a rollout that creates a set, except for its nodes and its height.
pub fn refresh_rollout(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    spend_force(status, facts);
    let is_ready = facts.is_ready_to_promote(status);
    let Some(set) = SetRollout::of(status) else { return };
    let Some(rollout) = status.rollout.as_mut() else { return };
    rollout.summary = stage::summary(facts, &set, rollout, is_ready);
}
