//! What becomes of versions that nobody wants any more, and of those that workflows still need. Beside the plan: a new
//! rollout waits for none of it.
//!
//! Nothing is taken from a version unless Temporal answers, lists what it listed before, and says of just this version that
//! nothing runs on it; and then only after workflows were counted once more.

use chrono::{DateTime, TimeDelta, Utc};
use windlass_engine::{Plan, TaskState};

use super::facts::{Facts, Temporal, Version};
use crate::api::VersionState;
use crate::port::BuildId;

/// What is counted lags: where Temporal does not say itself that a version is drained, it is left for so long at least after no
/// workflow was seen on it.
pub const IDLE: TimeDelta = TimeDelta::seconds(30);

/// What is to be done about one version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// It needs its workers: they are made, or given their pods back.
    Serve,
    /// Nothing.
    Leave,
    /// Whether workflows run on it has to be counted before more is said.
    Count,
    /// It has no more pods.
    ScaleDown,
    /// Its Deployment goes.
    DeleteWorkers,
    /// Temporal is to forget it.
    DeleteRecord,
    /// Nothing is left of it.
    Forget,
}

/// Which versions a plan is about, beside those that the routing and the spec name.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// Whether the wanted version is to be kept: it is, or is about to be, rolled out.
    pub target: bool,
    /// The version of an active plan, and how far that has come with it.
    pub planned: Option<(&'a BuildId, Making)>,
}

/// How far an active plan has come with the workers of its version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Making {
    /// It has yet to come to them, or is held up there: a version that takes tasks keeps the workers that it has.
    Ahead,
    /// Its own task makes or updates them in this look.
    Now,
    /// They are made: what is lost of them from then on nothing else makes again.
    Over,
}

impl Making {
    /// How far a plan has come. `is_carried_out`: whether its tasks run in this look.
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

/// What is to be done about a version, and when to look again if that is nothing yet.
#[must_use]
pub fn act(facts: &Facts, version: &Version, wanted: &Wanted<'_>, now: DateTime<Utc>) -> Act {
    let is_wanted = wanted.target && version.build == facts.target.build;
    let making = wanted.planned.filter(|(build, _)| **build == version.build).map(|(_, making)| making);
    if making == Some(Making::Now) {
        return Act::Leave;
    }
    let Temporal::Known(_) = &facts.temporal else {
        // What is there stays, and what somebody deleted of it comes back.
        let is_kept = stands(version) || making == Some(Making::Over);
        return if is_kept { Act::Serve } else { Act::Leave };
    };
    match facts.state(version) {
        VersionState::Current | VersionState::Ramping => Act::Serve,
        VersionState::Draining if version.was_active() => Act::Serve,
        // The plan's own task makes it, once, or gives it its pods back.
        _ if making == Some(Making::Ahead) => Act::Leave,
        _ if is_wanted && version.workers.is_none() && making.is_none() => Act::Leave,
        _ if is_wanted => Act::Serve,
        // Somebody's workers of their own: what becomes of their records is not ours to say.
        _ if version.workers.is_none() && version.listed.is_some() && !facts.is_ours(version) => Act::Leave,
        VersionState::Drained if version.was_active() => retire(facts, version, now),
        // It was listed, and is not: Temporal has to say so of just this version.
        VersionState::NotRegistered if version.was_listed() && !version.is_forgotten => Act::Leave,
        VersionState::NotRegistered if version.workers.is_none() => Act::Forget,
        // It never took tasks: a gate may have run on it, or somebody pinned a workflow to it. Of one that Temporal does not
        // know somebody may have deleted the record: what is pinned to it still needs its workers.
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

/// The steps down of a version on which nothing runs.
fn retire(facts: &Facts, version: &Version, now: DateTime<Utc>) -> Act {
    let Some(due) = due(facts, version) else { return Act::Leave };
    let Some(workers) = &version.workers else {
        return if now < due.delete { Act::Leave } else { counted(version, Act::DeleteRecord) };
    };
    if workers.is_terminating || now < due.scale_down {
        return Act::Leave;
    }
    if workers.replicas > 0 || !workers.is_sunset {
        return counted(version, Act::ScaleDown);
    }
    if now < due.delete || workers.total > 0 {
        return Act::Leave;
    }
    counted(version, Act::DeleteWorkers)
}

/// The act, if just now nothing was found to run on the version.
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

/// When a version on which nothing runs goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Due {
    /// When it has no more pods.
    pub scale_down: DateTime<Utc>,
    /// When it is deleted.
    pub delete: DateTime<Utc>,
}

/// When a version goes; none: it is not known yet since when nothing runs on it.
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

/// Since when nothing runs on a version: what Temporal says where that is later than what was written down.
#[must_use]
pub fn drained_since(version: &Version) -> Option<DateTime<Utc>> {
    let recorded = version.record.as_ref().and_then(|record| record.drained_since);
    if version.was_active() {
        let said = version.drained()?;
        return said.max(recorded);
    }
    recorded
}

/// Whether a version's workers are to be there although Temporal does not say what is so.
fn stands(version: &Version) -> bool {
    let recorded = version.record.as_ref().map(|record| record.state);
    let serves =
        matches!(recorded, Some(VersionState::Current | VersionState::Ramping | VersionState::Draining));
    serves && version.has_revision
}
