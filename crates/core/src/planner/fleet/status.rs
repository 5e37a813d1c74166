//! A fleet's status: how a decision changes it, and what follows from what was observed. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::{Cause, RolloutTarget, Start, only_creates};
use super::facts::FleetFacts;
use super::gate::WaitingFor;
use super::sets::{SetRollout, stage};
use super::{clock, hooks, initial_fill, progress};
use crate::api::Ending;
use crate::api::conditions::{self, STALLED};
use crate::api::status::{MAX_ASKED_BYTES, remember};
use crate::api::{
    HistoryEntry, LastRequest, NodeDeploymentStatus, RawPlan, Rejected, RevisionName, Rollout, RolloutHash,
    Stage,
};
use crate::engine::{Plan, sentence::cut};

/// The target of the persisted rollout.
#[must_use]
pub fn rollout_target_of(status: &NodeDeploymentStatus) -> RolloutTarget {
    match &status.rollout {
        Some(rollout) if rollout.own_revisions => RolloutTarget::Own,
        Some(rollout) => RolloutTarget::Revision(rollout.target()),
        None => RolloutTarget::Own,
    }
}

/// The maximum number of a user's requests that a rollout records.
const REQUEST_RECORD_LIMIT: usize = 5;

/// Records the user's last request. It is also recorded in the active rollout, if there is one.
pub fn record_request(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    let Some(written) = &facts.requests.asked else { return };
    let seen = cut(written, MAX_ASKED_BYTES);
    if seen == status.last_request {
        return;
    }
    status.last_request = seen;
    // A value that cannot be read was not written by the command line and is ignored.
    let (Ok(asked), Some(rollout)) = (serde_json::from_str::<LastRequest>(written), &mut status.rollout)
    else {
        return;
    };
    rollout.requests.push(asked.sentence());
    if rollout.requests.len() > REQUEST_RECORD_LIMIT {
        rollout.requests.remove(0);
    }
}

/// Records a new rollout in the status.
pub fn begin(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    start: &Start,
    plan: &Plan,
    revision: Option<&RevisionName>,
    now: DateTime<Utc>,
) {
    if let Some(restart) = &facts.requests.restart {
        status.restarted_at = restart.to_string();
    }
    let own = start.rollout_target == RolloutTarget::Own;
    let same = |r: &Rollout| {
        r.target() == start.target && r.own_revisions == own && r.strategy == start.strategy.api_name()
    };
    let before = status.rollout.take();
    let waiting_for = waiting_for(facts, start, before.as_ref());
    let before = before.filter(same);
    // A rollout to the same target continues with a new plan, and its clock is not restarted. A restart makes all nodes
    // outdated, so the progress is counted from 0.
    let entrant = before.as_ref().map(|r| (r.entrant_set.clone(), r.entrant_left_service_at));
    let (entrant_set, entrant_left_service_at) = entrant.unwrap_or_default();
    let not_counted_since = before.as_ref().and_then(|r| r.not_counted_since);
    let is_restart = facts.requests.restart.is_some();
    let window_opened = before.as_ref().is_some_and(|r| r.window_opened) && !is_restart;
    let (started_at, last_progress_at, max_updated, max_ready) = before.map_or((now, now, 0, None), |r| {
        if is_restart {
            (r.started_at, now, 0, None)
        } else {
            (r.started_at, r.last_progress_at, r.max_updated, r.max_ready)
        }
    });
    status.rollout = Some(Rollout {
        strategy: start.strategy.api_name().to_owned(),
        recipe: start.strategy.recipe().to_owned(),
        target_hash: start.target.to_string(),
        target_revision: revision.map(ToString::to_string).unwrap_or_default(),
        cause: start.cause.to_string(),
        own_revisions: own,
        started_at,
        last_progress_at,
        not_counted_since,
        max_updated,
        max_ready,
        from_hash: status.last_completed_rollout_hash.clone(),
        entrant_set,
        entrant_left_service_at,
        waiting_for: waiting_for.map_or_else(String::new, |waits| waits.as_ref().to_owned()),
        window_opened,
        ..Rollout::begun(now)
    });
    status.plan = Some(RawPlan::of(plan));
    if start.rollout_target == RolloutTarget::Revision(facts.requested.clone()) {
        status.rejected = None;
    }
    // If the rejected hash is the one that last completed, only a repair was rejected, and a repair that a user
    // requests drops the rejection. Otherwise a retry that starts a repair must not retry the rejected target as well
    // when the repair is over.
    if own && matches!(start.cause, Cause::RetryRequested | Cause::RestartRequested) {
        status.rejected = status.rejected.take().filter(|r| r.hash != status.last_completed_rollout_hash);
    }
    if own
        && start.cause == Cause::RetryRequested
        && let Some(rejected) = &mut status.rejected
    {
        rejected.plan_id = plan.id.to_string();
    }
    record_request(status, facts);
}

/// What a new rollout waits for until its gate was looked at. One that takes the place of another keeps its turn, so that a fleet
/// is not left half updated; but the fleets that come first may have a new release, too. The way back waits for none.
fn waiting_for(facts: &FleetFacts, start: &Start, before: Option<&Rollout>) -> Option<WaitingFor> {
    let before = before.filter(|before| before.stage != Stage::Retiring && !only_creates(before));
    if start.cause.only_creates() {
        return None;
    }
    let is_way_back = facts.record.last_completed.as_ref() == Some(&start.target);
    let is_same = |before: &Rollout| before.target() == start.target;
    match before {
        Some(before) if is_same(before) || is_way_back || !facts.spec.has_predecessors => {
            before.waiting_for.parse().ok()
        }
        _ if facts.spec.has_predecessors => Some(WaitingFor::Predecessors),
        _ if facts.rollout.gate.opens_at().is_some() => Some(WaitingFor::Window),
        _ => facts.rollout.limits.apply_to(start.cause).then_some(WaitingFor::Turn),
    }
}

/// Records the end of a plan in the history. The rollout stays in the status until the caller replaces or removes it.
pub fn end(status: &mut NodeDeploymentStatus, plan: &Plan, ending: Ending, reason: &str, now: DateTime<Utc>) {
    remember(
        &mut status.history,
        HistoryEntry {
            plan_id: plan.id.to_string(),
            recipe: plan.recipe.clone(),
            from_hash: match &status.rollout {
                Some(rollout) if !rollout.from_hash.is_empty() => rollout.from_hash.clone(),
                _ => status.last_completed_rollout_hash.clone(),
            },
            target_hash: plan.target_hash.clone(),
            outcome: ending.to_string(),
            reason: reason.to_owned(),
            message: status.rollout.as_ref().map(|r| r.requests.join("; ")).unwrap_or_default(),
            started_at: Some(plan.started_at),
            finished_at: Some(now),
        },
    );
    status.plan = Some(RawPlan::of(plan));
}

/// Rejects the target of a plan that was aborted, rolled back or failed, and nothing else: the desired target may have
/// changed by then, and was then never tried. A target that was rejected before a repair stays rejected.
pub fn reject(status: &mut NodeDeploymentStatus, facts: &FleetFacts, plan: &Plan, ending: Ending) {
    let before = facts.record.rejected.as_ref();
    let hash = match before {
        Some(rejected) => rejected.hash.clone(),
        // What is left of the plan does not contain its target.
        None if plan.target_hash.is_empty() => facts.requested.to_string(),
        None => plan.target_hash.clone(),
    };
    let build_id = before.map(|rejected| rejected.build_id.clone()).filter(|id| !id.is_empty());
    let build_id = build_id.unwrap_or_else(|| build_id_of(status, facts, &hash));
    status.rejected = Some(Rejected {
        hash,
        build_id,
        plan_id: plan.id.to_string(),
        outcome: ending.to_string(),
        message: String::new(),
    });
}

/// The build ID of a rollout's target: that of its new set, that of the set that it updated in place, or a generated
/// one.
fn build_id_of(status: &NodeDeploymentStatus, facts: &FleetFacts, hash: &str) -> String {
    let of_rollout = status.rollout.as_ref().and_then(Rollout::build_id);
    let in_place = status.rollout.as_ref().is_none_or(|r| r.entrant_set.is_empty());
    if let Some(id) = of_rollout.or_else(|| facts.record.active_build_id.clone().filter(|_| in_place)) {
        return id.into();
    }
    match RolloutHash::recorded(hash)
        .and_then(|hash| facts.rendering(&hash, facts.record.restarted_at.as_ref()))
    {
        Some(rendering) => generated_build_id(&rendering.image, hash),
        None => status.build_id.clone(),
    }
}

/// Records the completion of a rollout in the status.
pub fn complete(status: &mut NodeDeploymentStatus, rollout_target: &RolloutTarget) {
    let rollout = status.rollout.take();
    if let (RolloutTarget::Revision(target), Some(rollout)) = (rollout_target, rollout) {
        status.last_completed_rollout_hash = target.to_string();
        status.current_revision = rollout.target_revision;
        status.scaled_to_zero = false;
    }
}

/// How late a stall may be detected. A fleet is reconciled when its clock runs out. If it is reconciled later, and is
/// not reported as stalled, the operator or the API server was not running in between.
const UNWATCHED: TimeDelta = TimeDelta::seconds(90);

/// True if the clock of a rollout, or of a fleet that is filled without one, has run out. Time in which no operator ran
/// does not count, and neither does a clock that unrecorded progress is about to restart.
#[must_use]
pub fn is_stalled(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) -> bool {
    stall_deadline(status, facts, now).is_some_and(|deadline| now >= deadline)
        && !was_unwatched(status, facts, now)
        && !has_progressed(status, facts)
}

/// True if the active rollout has made progress that its status does not record yet.
fn has_progressed(status: &NodeDeploymentStatus, facts: &FleetFacts) -> bool {
    let Some(rollout) = &status.rollout else { return false };
    let set = SetRollout::of(status);
    let (score, ready) = stage::reached(facts, set.as_ref(), &rollout_target_of(status));
    // With another number of nodes, another score is possible.
    let is_comparable = rollout.nodes.total == facts.spec.replicas;
    is_comparable && (score > rollout.max_updated || progress::is_more(ready, rollout.max_ready))
}

/// True if the clock of the active rollout ran out while no operator ran.
pub(super) fn was_unwatched(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) -> bool {
    let is_late = || stall_deadline(status, facts, now).is_some_and(|deadline| now >= deadline + UNWATCHED);
    status.rollout.is_some() && !conditions::is_true(&status.conditions, STALLED) && is_late()
}

/// When the active rollout, or the filling of a fleet without one, counts as stalled without progress; `None` while its
/// clock is stopped.
#[must_use]
pub fn stall_deadline(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let Some(rollout) = &status.rollout else { return initial_fill::stall_deadline(status, facts, now) };
    // The clock restarts with the write that records that it is no longer stopped.
    if is_stopped(status, facts) {
        return None;
    }
    // Keeping the old nodes for the configured delay is not a stall.
    let removal = |r: &crate::api::RetiringSet| (r.set == rollout.incumbent_set).then(|| facts.removal_of(r));
    let due = status.retiring.iter().find_map(removal).filter(|_| rollout.stage == Stage::Retiring);
    let mut clock = clock::of(rollout);
    clock.last_progress_at = due.map_or(clock.last_progress_at, |due| due.max(clock.last_progress_at));
    clock::runs_out(&clock, facts, now)
}

/// True if a rollout's clock is stopped: it is paused, waits for a user, a hook, a window, other fleets or the fleet's
/// Service, or no nodes are desired.
pub(super) fn is_stopped(status: &NodeDeploymentStatus, facts: &FleetFacts) -> bool {
    let Some(rollout) = &status.rollout else { return false };
    let by_person = match rollout.stage {
        Stage::Updating => progress::is_held_by_partition(facts, &rollout_target_of(status)),
        // Nodes that became unready again count like nodes that were never ready.
        Stage::AwaitingPromotion => facts.spec.replicas == 0 || facts.is_ready_to_promote(status),
        _ => facts.spec.replicas == 0,
    };
    // No node causes this, so the target is not at fault.
    let by_service = || SetRollout::of(status).is_some_and(|rollout| facts.awaits_service(&rollout));
    let at_gate = || facts.stands_at_gate(&rollout_target_of(status));
    facts.spec.paused || by_person || hooks::stop_the_clock(facts) || by_service() || at_gate()
}

/// What [`refresh`](super::refresh::refresh) needs in addition to the facts.
pub struct RefreshInput<'a> {
    /// The fleet's name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The generation of the spec that was read.
    pub generation: i64,
    /// The desired ControllerRevision, if it is stored.
    pub update_revision: Option<&'a RevisionName>,
    /// The desired build ID.
    pub build_id: &'a str,
    /// The current plan.
    pub plan: Option<&'a Plan>,
    /// What has changed and is rolled out next, in a sentence.
    pub next: Option<&'a str>,
    /// True if the labels of machines are known.
    pub reads_machines: bool,
    /// The digest of the ConfigMaps and Secrets that the template names.
    pub config_digest: &'a str,
    /// The time.
    pub now: DateTime<Utc>,
}

/// A hash as it is shown in messages: its first five digits.
#[must_use]
pub fn short<H: AsRef<str> + ?Sized>(hash: &H) -> &str {
    let hash = hash.as_ref();
    let digits = hash.split_once(':').map_or(hash, |(_, digits)| digits);
    digits.get(..5).unwrap_or(digits)
}

/// The build ID that is generated from an image's tag and a rollout hash.
#[must_use]
pub fn generated_build_id(image: &str, hash: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("latest", |(_, tag)| tag);
    let tag: String = tag.chars().take(50).collect();
    format!("{tag}-{}", short(hash))
}
