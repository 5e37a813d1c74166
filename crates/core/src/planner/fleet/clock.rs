//! The progress clock of a fleet: that of a rollout, or of a fleet that is filled without one. It counts the time since
//! the last progress, but not while a node is in a period that Kubernetes or the spec allows it (`planner/waits.rs`):
//! such a node is not stalled. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::child::{ChildFacts, GrantTime};
use super::facts::FleetFacts;
use super::progress;
use crate::api::{ProgressClock, Rollout};
use crate::planner::waits::Wait;

/// What a clock is advanced by.
pub(super) struct Reading {
    /// The score now.
    pub score: i32,
    /// The number of nodes that are Ready at the target now.
    pub ready: Option<i32>,
    /// True if the clock is stopped. It restarts from 0 after that.
    pub is_stopped: bool,
    /// True if the clock ran out while no operator ran.
    pub is_unwatched: bool,
}

/// The clock of a rollout.
pub(super) fn of(rollout: &Rollout) -> ProgressClock {
    ProgressClock {
        last_progress_at: rollout.last_progress_at,
        max_updated: rollout.max_updated,
        max_ready: rollout.max_ready,
        total: rollout.nodes.total,
        progress_paused: rollout.progress_paused,
        not_counted_since: rollout.not_counted_since,
    }
}

/// Records the clock of a rollout.
pub(super) fn set(rollout: &mut Rollout, clock: &ProgressClock) {
    rollout.last_progress_at = clock.last_progress_at;
    (rollout.max_updated, rollout.max_ready) = (clock.max_updated, clock.max_ready);
    rollout.progress_paused = clock.progress_paused;
    rollout.not_counted_since = clock.not_counted_since;
}

/// Advances a clock: it restarts when one more node is updated or ready.
pub(super) fn advance(
    mut clock: ProgressClock,
    facts: &FleetFacts,
    reading: &Reading,
    now: DateTime<Utc>,
) -> ProgressClock {
    let Reading { score, ready, is_stopped, is_unwatched } = *reading;
    if clock.total != facts.spec.replicas {
        // With another number of nodes, another score is possible; nodes that were removed are neither progress nor a
        // loss.
        clock.max_updated = clock.max_updated.min(score);
        clock.max_ready = clock.max_ready.min(ready);
        clock.total = facts.spec.replicas;
    }
    let is_progress = score > clock.max_updated || progress::is_more(ready, clock.max_ready);
    if is_progress || is_unwatched || (clock.progress_paused && !is_stopped) {
        (clock.last_progress_at, clock.not_counted_since) = (now, None);
    }
    clock.progress_paused = is_stopped;
    // A time in the future was written before the clock was set back; no stall would be detected until then.
    clock.last_progress_at = clock.last_progress_at.min(now);
    clock.max_updated = clock.max_updated.max(score);
    clock.max_ready = clock.max_ready.max(ready);
    let wait = facts.wait(now);
    match not_counted(&clock, wait, allowed(facts), now) {
        _ if is_stopped => clock.not_counted_since = None,
        Some(since) if wait.is_some() => clock.not_counted_since = Some(since),
        Some(since) => {
            clock.last_progress_at += (now - since).max(TimeDelta::zero());
            clock.not_counted_since = None;
        }
        None => clock.not_counted_since = None,
    }
    clock
}

/// When a clock runs out, if nothing else happens; `None` while it is stopped. A wait that the clock does not record
/// yet counts from its beginning, and one that is over, but is still recorded, until now.
pub(super) fn runs_out(
    clock: &ProgressClock,
    facts: &FleetFacts,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    if clock.progress_paused {
        return None;
    }
    let (wait, allowed) = (facts.wait(now), allowed(facts));
    let waits = not_counted(clock, wait, allowed, now)
        .map(|since| (wait.map_or(now, |wait| wait.until) - since).max(TimeDelta::zero()));
    Some(clock.last_progress_at + allowed + waits.unwrap_or_default())
}

/// Since when time is not counted. `None` if it is counted, or if the clock has run out: the deletion of a pod does not
/// end a stall.
fn not_counted(
    clock: &ProgressClock,
    wait: Option<Wait>,
    allowed: TimeDelta,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let since = clock.not_counted_since.or(wait.map(|wait| wait.from))?;
    // A time in the future was written before the clock was set back.
    let since = since.min(now).max(clock.last_progress_at);
    Some(since).filter(|since| *since - clock.last_progress_at < allowed)
}

fn allowed(facts: &FleetFacts) -> TimeDelta {
    TimeDelta::seconds(facts.spec.deadline_seconds)
}

impl FleetFacts {
    /// The time that the nodes of a fleet, or of its rollout, are given now; `None` if it is counted. It is while a node
    /// has used up its own time, whatever the others do.
    #[must_use]
    pub fn wait(&self, now: DateTime<Utc>) -> Option<Wait> {
        let is_overdue = |child: &ChildFacts| child.grant.time == GrantTime::Over && !child.grant.is_proven;
        if self.nodes_of_rollout().any(is_overdue) {
            return None;
        }
        let waits = self.nodes_of_rollout().filter_map(|child| child.health.wait);
        Wait::union(waits.chain(self.ending).filter(|wait| wait.is_on(now)))
    }
}
