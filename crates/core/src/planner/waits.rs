//! The times that a node is given by Kubernetes or by the spec: the grace period of a pod that is being deleted, what
//! the probes of its containers give them after a start, and `minReadySeconds`. No deadline counts them. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use crate::observed::{ContainerState, ObservedPod, StartTime};

/// Waiting reasons that go away by themselves.
pub const PASSING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// A time that is not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wait {
    /// When it began.
    pub from: DateTime<Utc>,
    /// When it is over.
    pub until: DateTime<Utc>,
}

impl Wait {
    /// A wait of this many seconds.
    #[must_use]
    pub fn of(from: DateTime<Utc>, seconds: i64) -> Option<Self> {
        let until = from.checked_add_signed(TimeDelta::try_seconds(seconds)?)?;
        Some(Self { from, until })
    }

    /// True if it is not over. The clock of another machine may be ahead, so that it begins in the future.
    #[must_use]
    pub fn is_on(&self, now: DateTime<Utc>) -> bool {
        now < self.until
    }

    /// The time from the first beginning to the last end; `None` if there are none.
    #[must_use]
    pub fn union(waits: impl IntoIterator<Item = Self>) -> Option<Self> {
        let both = |a: Self, b: Self| Self { from: a.from.min(b.from), until: a.until.max(b.until) };
        waits.into_iter().reduce(both)
    }
}

/// By how much the clocks of other machines may be ahead.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::minutes(1);

/// What a pod may still take until it has ended, or is Ready. It is given that once: a container that was restarted has
/// it from the creation of the pod, and there is none while any container cannot run.
#[must_use]
pub fn of_pod(pod: &ObservedPod, now: DateTime<Utc>) -> Option<Wait> {
    wait_of(pod).filter(|wait| wait.from <= now + CLOCKS_DIFFER)
}

/// The same, and `None` once a container was restarted: an image that crashes would be given time again and again.
#[must_use]
pub fn of_first_start(pod: &ObservedPod, now: DateTime<Utc>) -> Option<Wait> {
    of_pod(pod, now).filter(|_| pod.deletion.is_some() || pod.containers.iter().all(|c| c.restarts == 0))
}

fn wait_of(pod: &ObservedPod) -> Option<Wait> {
    if let Some(deletion) = &pod.deletion {
        return Some(Wait { from: deletion.requested_at, until: deletion.due_at });
    }
    if pod.is_ready() || pod.containers.iter().any(fails) {
        return None;
    }
    Wait::union(pod.containers.iter().filter_map(|container| {
        let time = pod.start_times.iter().find(|time| time.container == container.name)?;
        of_container(container, time, pod.meta.created_at)
    }))
}

fn fails(container: &ContainerState) -> bool {
    let waits = container.waiting.as_ref().map(|(reason, _)| reason.as_str());
    let ended = container.ended && !container.init;
    ended || waits.is_some_and(|reason| !reason.is_empty() && !PASSING.contains(&reason))
}

/// The kubelet may not report when the container started. Then its time counts from the creation of the pod.
fn of_container(
    container: &ContainerState,
    time: &StartTime,
    created_at: Option<DateTime<Utc>>,
) -> Option<Wait> {
    if !container.running || container.ready {
        return None;
    }
    let startup = if container.started { 0 } else { time.startup_seconds };
    let seconds = Some(startup.max(time.delay_seconds)).filter(|seconds| *seconds > 0)?;
    let started_at = container.running_since.filter(|_| container.restarts == 0);
    Wait::of(started_at.or(created_at)?, seconds)
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
