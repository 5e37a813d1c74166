//! Puts the begin, the promotion and the end of a rollout that makes a set of nodes into the fleet's status.

use chrono::{DateTime, Utc};

use super::super::decision::Strategy;
use super::super::facts::FleetFacts;
use super::rollout::SetRollout;
use super::stage;
use crate::api::ids::field;
use crate::api::status::RETIRING_LIMIT;
use crate::api::{Ending, HookPoint, NodeDeploymentStatus, RetiringSet, Rollout, SetName, Stage};
use crate::planner::hooks::is_left_at;

/// Makes the rollout that was just begun one that makes a set of this name.
pub fn begin(status: &mut NodeDeploymentStatus, facts: &FleetFacts, strategy: Strategy, entrant: &SetName) {
    let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let from = status.last_completed_rollout_hash.clone();
    let active = facts.set.to_string();
    // A set that lived on and is wanted again is not removed; when it left service counts if it is given up.
    let left_service =
        status.retiring.iter().find(|set| *entrant == *set.set && set.has_served()).map(|set| set.since);
    status.retiring.retain(|set| *entrant != *set.set);
    let Some(rollout) = status.rollout.as_mut() else { return };
    // A paused fleet does not start Promoting: the spec may change before it is resumed. Neither does one whose BeforeRollout
    // hooks are not finished.
    let waits = facts.paused || plan.is_some_and(|plan| is_left_at(&plan, HookPoint::BeforeRollout));
    rollout.stage = if waits { Stage::CreatingEntrants } else { strategy.first_stage() };
    rollout.incumbent_set = active;
    let known = rollout.entrant_left_service_at.filter(|_| *entrant == *rollout.entrant_set);
    rollout.entrant_left_service_at = left_service.or(known);
    rollout.entrant_set = entrant.to_string();
    field(facts.build_id.as_ref()).clone_into(&mut rollout.build_id);
    rollout.from_hash = from;
    if rollout.stage == Stage::Promoting {
        pass_no_return(status, facts);
    }
}

/// Persists what the promotion rests on from now on, whatever the spec becomes.
pub fn pass_no_return(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    if let Some(rollout) = status.rollout.as_mut() {
        rollout.stage = Stage::Promoting;
        rollout.forced = false;
        if rollout.strategy == Strategy::HardFork.api_name() {
            rollout.halt_height = facts.halt_height;
        }
    }
    spend_force(status, facts);
}

/// A promotion that a person forces, and that can no longer be taken back, has used up what they said: from here on the
/// status says that they did.
fn spend_force(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    // What serves already needs no promotion, and one is not kept for when it is wanted again.
    if facts.force_promote && status.last_completed() == facts.requested {
        status.spent_force_promote = facts.requested.to_string();
    }
    let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage == Stage::Promoting) else { return };
    if facts.force_promote {
        rollout.forced = true;
        status.spent_force_promote = facts.requested.to_string();
    }
}

/// Traffic has moved: the entrants are the active set, and what was wanted of them is complete.
pub fn switched(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    spend_force(status, facts);
    let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage != Stage::Retiring) else { return };
    rollout.stage = Stage::Retiring;
    rollout.last_progress_at = now;
    rollout.best = i32::MIN;
    let (entrant, target) = (rollout.entrant_set.clone(), rollout.target_hash.clone());
    let (revision, build_id) = (rollout.target_revision.clone(), rollout.build_id.clone());
    let halt_height = rollout.halt_height;
    retire(
        status,
        RetiringSet {
            set: facts.set.to_string(),
            hash: facts.last_completed.clone().map(String::from).unwrap_or_default(),
            build_id: field(facts.active_build_id.as_ref()).to_owned(),
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

/// Traffic is back at the old set: the promotion is not past taking back any more. What carried it for a while has its delay.
pub fn moved_back(status: &mut NodeDeploymentStatus, now: DateTime<Utc>) {
    if let Some(rollout) = status.rollout.as_mut().filter(|r| r.stage == Stage::Promoting) {
        rollout.stage = Stage::AwaitingPromotion;
        rollout.entrant_left_service_at = Some(now);
    }
}

/// The rollout is given up before its promotion: its entrants go, and keep their claims. Those that served before have
/// the rest of their delay.
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

/// Brings the list of sets that go up to date: what is gone leaves it, what nobody knows of joins it.
pub fn refresh_retiring(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    let exists = |set: &str| facts.sets.get(set).is_some_and(|s| !s.is_gone());
    let entrant = status.rollout.as_ref().and_then(Rollout::entrant);
    let enters = |set: &str| entrant.as_ref().is_some_and(|entrant| *entrant == *set);
    status.retiring.retain(|set| facts.set != *set.set && !enters(&set.set) && exists(&set.set));
    // A time in the future was written by a clock that has since been set back; the set would live on by as much.
    for set in &mut status.retiring {
        set.since = set.since.min(now);
    }
    // After a plan that failed nobody knows which set is whose: nothing joins until a person has asked for something.
    // Nor where nobody knows which set serves.
    let failed = status.rollout.is_none()
        && status.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::Failed));
    let failed = failed || facts.undecided.is_some();
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
        // Nothing says when it served, so it may have: its claims stay, and it has its delay.
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
    // Beyond the limit the oldest go at once.
    status.retiring.sort_by_key(|set| set.since);
    let beyond = status.retiring.len().saturating_sub(RETIRING_LIMIT);
    for set in status.retiring.iter_mut().take(beyond) {
        set.since = DateTime::UNIX_EPOCH;
    }
}

/// Brings what a rollout that makes a set says of itself up to date, its nodes apart.
pub fn refresh_rollout(status: &mut NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) {
    spend_force(status, facts);
    let Some(set) = SetRollout::of(status) else { return };
    let Some(rollout) = status.rollout.as_mut() else { return };
    if set.halt_height > 0 && set.stage == Stage::Promoting {
        let height = stage::lowest_height(facts);
        if height > rollout.height {
            rollout.height = height;
            rollout.last_progress_at = now;
        }
    }
    rollout.summary = stage::summary(facts, &set, rollout);
}
