//! Retires versions that are no longer needed, and maintains those that workflows still need. Independent of the
//! plan: a new rollout does not wait for it.
//!
//! Windlass scales down or deletes a version only if Temporal responds, still lists the versions that it listed before,
//! and reports that no workflow runs on this one. Windlass then counts its workflows once more.

use chrono::{DateTime, TimeDelta, Utc};
use windlass_engine::{Plan, TaskState};

use super::facts::{Facts, TemporalState, Version};
use crate::api::VersionState;
use crate::port::BuildId;

/// Counts lag: a version that Temporal does not report as drained is kept for at least this long after the last
/// workflow was seen on it.
pub const IDLE: TimeDelta = TimeDelta::seconds(30);

/// How long after the first count of zero a version that Temporal does not report as drained counts as drained: Temporal checks
/// every three minutes, but some versions stay Draining in its records for good (temporal-worker-controller#552).
const UNREPORTED: TimeDelta = TimeDelta::minutes(15);

/// The next action for a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// Create its workers, or scale them up.
    Serve,
    /// Nothing.
    Leave,
    /// Count its workflows, then decide again.
    Count,
    /// Scale its workers to zero.
    ScaleDown,
    /// Delete its Deployment.
    DeleteWorkers,
    /// Delete its record in Temporal.
    DeleteRecord,
    /// No part of it exists: remove it from the status.
    Forget,
}

/// The versions that a plan needs, besides those that the routing and the spec name.
#[derive(Clone, Debug, Default)]
pub struct NeededVersions<'a> {
    /// True if the target is needed: it is rolled out, or is about to be.
    pub target: bool,
    /// The version of an active rollout, and its progress with its workers.
    pub planned: Option<(&'a BuildId, Making)>,
    /// The version to which an active evacuation moves workflows.
    pub refuge: Option<&'a BuildId>,
}

/// The progress of an active plan with the workers of its version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Making {
    /// Its task has not run, or is blocked: a version that receives tasks keeps its existing workers.
    Ahead,
    /// Its task creates or updates the workers in this reconcile.
    Now,
    /// Its task has ended: no task of the plan recreates lost workers.
    Over,
}

impl Making {
    /// The progress of a plan. `is_carried_out`: true if its tasks run in this reconcile.
    #[must_use]
    pub fn of(facts: &Facts, plan: &Plan, is_carried_out: bool) -> Self {
        let makes_version = |type_: &str| type_ == "create-version";
        if plan.tasks.iter().any(|task| makes_version(&task.type_) && task.state == TaskState::Complete) {
            return Self::Over;
        }
        let is_held = !is_carried_out || facts.spec.paused || facts.invalid.is_some();
        let is_next = plan.current_task().is_some_and(|task| makes_version(&task.type_));
        if is_next && !is_held { Self::Now } else { Self::Ahead }
    }
}

/// Decides the next action for a version.
#[must_use]
pub fn act(facts: &Facts, version: &Version, wanted: &NeededVersions<'_>, now: DateTime<Utc>) -> Act {
    let is_wanted = wanted.target && version.build == facts.target.build;
    let making = wanted.planned.filter(|(build, _)| **build == version.build).map(|(_, making)| making);
    if making == Some(Making::Now) {
        return Act::Leave;
    }
    let TemporalState::Known(_) = &facts.temporal else {
        // Existing workers stay, and deleted ones are recreated.
        let is_kept = stands(version, now) || making == Some(Making::Over);
        return if is_kept { Act::Serve } else { Act::Leave };
    };
    match facts.state(version) {
        VersionState::Current | VersionState::Ramping => Act::Serve,
        VersionState::Draining if version.was_active() && !is_drained(version, now) => Act::Serve,
        _ if wanted.refuge == Some(&version.build) => Act::Serve,
        // The plan's own task creates them, or scales them up.
        _ if making == Some(Making::Ahead) => Act::Leave,
        _ if is_wanted && version.workers.is_none() && making.is_none() => Act::Leave,
        _ if is_wanted => Act::Serve,
        // The workers belong to another client: Windlass does not delete their record.
        _ if version.workers.is_none() && version.listed.is_some() && !facts.is_ours(version) => Act::Leave,
        VersionState::Drained if version.was_active() => retire(facts, version, now),
        // Temporal listed it before: act only if Temporal reports this version as not found.
        VersionState::NotRegistered if version.was_listed() && !version.is_forgotten => Act::Leave,
        VersionState::NotRegistered if version.workers.is_none() => Act::Forget,
        // It never received tasks, but a gate may have run on it, or a person may have pinned a workflow to it. If
        // Temporal does not know it, a person may have deleted the record: workflows pinned to it still need its
        // workers. Or Temporal does not report that it is drained.
        VersionState::NotRegistered
        | VersionState::Inactive
        | VersionState::Draining
        | VersionState::Drained => match pinned(version) {
            None => Act::Count,
            Some(0) => retire(facts, version, now),
            Some(_) => Act::Serve,
        },
    }
}

/// The next step of retiring a version on which no workflow runs.
fn retire(facts: &Facts, version: &Version, now: DateTime<Utc>) -> Act {
    let Some(due) = due(facts, version) else { return Act::Leave };
    let Some(workers) = &version.workers else {
        return if now < due.delete { Act::Leave } else { counted(version, Act::DeleteRecord) };
    };
    if workers.is_terminating() || now < due.scale_down {
        return Act::Leave;
    }
    // Another client, such as an autoscaler with a minimum, scales it up: do not wait for its pods to terminate.
    let is_contested = workers.is_sunset() && workers.replicas() > 0;
    if is_contested && now >= due.delete {
        return counted(version, Act::DeleteWorkers);
    }
    if is_contested || !workers.is_sunset() {
        return counted(version, Act::ScaleDown);
    }
    if now < due.delete || workers.total() > 0 {
        return Act::Leave;
    }
    counted(version, Act::DeleteWorkers)
}

/// True if another client scaled up a version that Windlass scaled to zero, and its deletion is not due.
#[must_use]
pub fn is_contested(facts: &Facts, version: &Version, now: DateTime<Utc>) -> bool {
    version.workers.as_ref().is_some_and(|workers| workers.is_sunset() && workers.replicas() > 0)
        && due(facts, version).is_some_and(|due| now < due.delete)
}

/// Returns the act if this reconcile counted no workflow on the version, else a count.
fn counted(version: &Version, act: Act) -> Act {
    match pinned(version) {
        None => Act::Count,
        Some(0) => act,
        Some(_) => Act::Serve,
    }
}

fn pinned(version: &Version) -> Option<u64> {
    version.running.map(|running| running.pinned)
}

/// When an idle version is retired.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Due {
    /// When it is scaled to zero.
    pub scale_down: DateTime<Utc>,
    /// When its Deployment and its record are deleted.
    pub delete: DateTime<Utc>,
}

/// When a version is retired; `None` if it is not known to be idle.
#[must_use]
pub fn due(facts: &Facts, version: &Version) -> Option<Due> {
    let since = drained_since(version)?;
    let after = |seconds: i64| since + TimeDelta::seconds(seconds);
    let sunset = &facts.spec.sunset;
    let (down, delete) = (i64::from(sunset.scale_down_delay_seconds), i64::from(sunset.delete_delay_seconds));
    if version.was_active() {
        return Some(Due { scale_down: after(down), delete: after(delete.max(down)) });
    }
    let soon = after(down.min(IDLE.num_seconds()));
    Some(Due { scale_down: soon, delete: soon })
}

/// The time since which a version counts as drained: the later of Temporal's time and the status's. It may be in the future.
#[must_use]
pub fn drained_since(version: &Version) -> Option<DateTime<Utc>> {
    let recorded = version.record.as_ref().and_then(|record| record.drained_since);
    match version.drained() {
        _ if !version.was_active() => recorded,
        Some(reported) => reported.max(recorded),
        None => recorded.map(|since| since + UNREPORTED),
    }
}

/// True if a version counts as drained.
#[must_use]
pub fn is_drained(version: &Version, now: DateTime<Utc>) -> bool {
    drained_since(version).is_some_and(|since| since <= now)
}

/// True if a version keeps its workers while the state in Temporal is unknown.
#[must_use]
pub fn stands(version: &Version, now: DateTime<Utc>) -> bool {
    let Some(record) = version.record.as_ref().filter(|_| version.has_revision) else { return false };
    match record.state {
        VersionState::Current | VersionState::Ramping => true,
        VersionState::Draining => record.drained_since.is_none_or(|since| now < since + UNREPORTED),
        VersionState::NotRegistered | VersionState::Inactive | VersionState::Drained => false,
    }
}
