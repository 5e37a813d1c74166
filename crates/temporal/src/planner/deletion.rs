//! The deletion of a WorkerDeployment: its steps and their order. It never waits for an event that may never occur: if
//! Temporal keeps a record because another client still polls for it, the record remains.

use chrono::{DateTime, TimeDelta, Utc};
use windlass_core::api::names::argument_of;

use super::facts::{Facts, TemporalState, Version, Workers};
use super::routing::{Next, lost, owned};
use super::sunset::{IDLE, stands};
use crate::api::{DeletionPolicy, Reason, VersionState};
use crate::port::{BuildId, DescribedDeployment, RampTarget, RoutingWrite};

/// How long the deletion waits for Temporal's record of a version whose workers no longer exist: Temporal remembers pollers
/// for five minutes.
const RECORD_PATIENCE: TimeDelta = TimeDelta::minutes(10);
/// How long the deletion waits for Temporal to remove the manager, where everything else is retained.
const MANAGER_PATIENCE: TimeDelta = TimeDelta::minutes(1);

/// The next step of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Change the routing back to workers without a version.
    Write(RoutingWrite),
    /// Remove the manager from the deployment in Temporal.
    Release,
    /// Delete what no workflow needs.
    Take {
        /// The versions whose Deployments to delete.
        workers: Vec<BuildId>,
        /// The versions whose records in Temporal to delete.
        records: Vec<BuildId>,
        /// The versions whose workflows to count before deciding about them.
        count: Vec<BuildId>,
        /// The condition that the deletion waits for, as a sentence.
        message: String,
    },
    /// Wait.
    Wait {
        /// The reason of the wait.
        reason: Reason,
        /// The condition that the deletion waits for, as a sentence.
        message: String,
    },
    /// All steps are done: remove the finalizer.
    Done,
}

/// The command that deletes an object without waiting.
#[must_use]
pub fn delete_now(namespace: &str, name: &str) -> String {
    format!("windlass delete {} --now", argument_of("wwd", name, namespace))
}

/// The end of a message about a deletion that waits.
#[must_use]
pub fn now_hint(namespace: &str, name: &str) -> String {
    format!("to delete without waiting, run: {}", delete_now(namespace, name))
}

/// The next step of the deletion.
#[must_use]
pub fn step(facts: &Facts, now: DateTime<Utc>) -> Step {
    let since = facts.deleted_at.unwrap_or(now);
    if facts.spec.deletion_policy == DeletionPolicy::Retain {
        return retain(facts, !facts.delete_now && now < since + MANAGER_PATIENCE);
    }
    if facts.delete_now {
        return without_waiting(facts);
    }
    let TemporalState::Known(described) = &facts.temporal else { return temporal_lost(facts, since, now) };
    if let Some(write) = routing_to_release(facts, described) {
        if facts.other_manager().is_some() {
            let Next::Wait { reason, message, .. } = owned(facts) else { return Step::Done };
            let message = format!(
                "{message}; to keep the routing and delete without waiting, run: {}",
                delete_now(&facts.namespace, &facts.name)
            );
            return Step::Wait { reason, message };
        }
        return Step::Write(write);
    }
    take(facts, since, now)
}

/// The step while the state in Temporal is unknown. Existing workers stay, and deleted ones are restored. If there are none, because
/// Temporal was never reached or the namespace is being deleted too, no workflow is at risk: the deletion retries for some minutes to
/// release the records in Temporal.
fn temporal_lost(facts: &Facts, since: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let Next::Wait { reason, message, .. } = lost(facts) else { return Step::Done };
    if facts.versions.values().any(|version| has_to_drain(facts, version, now)) {
        let message = format!(
            "Windlass keeps the workers until Temporal reports which workflows run on them ({message}); {}",
            now_hint(&facts.namespace, &facts.name)
        );
        return Step::Wait { reason, message };
    }
    let was_known = facts.versions.values().any(Version::was_listed);
    if !was_known || now >= since + RECORD_PATIENCE {
        return Step::Done;
    }
    let message = format!(
        "no workers are left; until {} min after the deletion, Windlass retries to delete the records of their versions in \
         Temporal ({message}); {}",
        RECORD_PATIENCE.num_minutes(),
        now_hint(&facts.namespace, &facts.name)
    );
    Step::Wait { reason, message }
}

/// The step under `deletionPolicy: Retain`: only the manager is removed.
fn retain(facts: &Facts, wait: bool) -> Step {
    match &facts.temporal {
        TemporalState::Known(_) if facts.is_manager() && (wait || facts.delete_now) => Step::Release,
        // It is unknown whether Windlass is the manager.
        TemporalState::Lost { reason, message } if wait && !facts.status.versions.is_empty() => {
            Step::Wait { reason: *reason, message: message.clone() }
        }
        _ => Step::Done,
    }
}

/// The routing change, if any, that routes tasks away from this object's versions.
fn routing_to_release(facts: &Facts, described: &DescribedDeployment) -> Option<RoutingWrite> {
    let is_ours = |build: &BuildId| facts.versions.get(build).is_some_and(|version| facts.is_ours(version));
    let ramp = described.routing.ramp.as_ref();
    let ramps_here = ramp.is_some_and(|ramp| match &ramp.to {
        RampTarget::Version(build) => is_ours(build),
        RampTarget::Unversioned => facts.is_manager(),
    });
    if ramps_here {
        return Some(RoutingWrite::ClearRamp);
    }
    described.routing.current.as_ref().filter(|build| is_ours(build)).map(|_| RoutingWrite::Current(None))
}

fn take(facts: &Facts, since: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let (mut workers, mut records, mut count) = (Vec::new(), Vec::new(), Vec::new());
    let mut first_wait: Option<String> = None;
    let mut wait_for = |sentence: String| {
        first_wait.get_or_insert(sentence);
    };
    for version in facts.versions.values() {
        let build = version.build.clone();
        if has_to_drain(facts, version, now) {
            let deployment = version.workers.as_ref();
            match pinned_workflows(version) {
                None => {
                    count.push(build.clone());
                    wait_for(match &version.uncounted {
                        None => format!("counting the workflows on {build}"),
                        Some(error) => format!(
                            "could not count the workflows on {build}, so Windlass keeps its workers ({error}); {}",
                            now_hint(&facts.namespace, &facts.name)
                        ),
                    });
                }
                Some(0) if deployment.is_some_and(Workers::is_terminating) => {
                    wait_for(format!("waiting for the deletion of the workers of {build} to complete"));
                }
                Some(0) if !is_over(version, now) => wait_for(format!(
                    "no workflow runs on {build}; Windlass deletes its workers after {} s without workflows, because Temporal's \
                     counts lag",
                    IDLE.num_seconds()
                )),
                Some(0) => {
                    workers.push(build.clone());
                    wait_for(format!("deleting the workers of {build}"));
                }
                Some(pinned) => wait_for(format!(
                    "running workflows on {build}: {pinned}. Windlass deletes its workers when these workflows end; {}",
                    now_hint(&facts.namespace, &facts.name)
                )),
            }
            continue;
        }
        let patience =
            version.record.as_ref().and_then(|r| r.drained_since).unwrap_or(since) + RECORD_PATIENCE;
        let patience = patience.max(since + RECORD_PATIENCE);
        if version.listed.is_some() && facts.is_ours(version) && now < patience {
            records.push(build.clone());
            wait_for(format!(
                "waiting for Temporal to delete its record of {build}: Temporal keeps it for some minutes after the last worker \
                 stopped"
            ));
        }
    }
    match first_wait {
        Some(message) => Step::Take { workers, records, count, message },
        None if facts.is_manager()
            && now < last_idle_at(facts, since) + RECORD_PATIENCE + MANAGER_PATIENCE =>
        {
            Step::Release
        }
        None => Step::Done,
    }
}

/// The versions whose workers are maintained: those that take tasks, and those on which workflows run, as far as they are
/// counted.
pub fn in_use(facts: &Facts, now: DateTime<Utc>) -> impl Iterator<Item = &Version> {
    let is_used = move |version: &&Version| match facts.temporal {
        TemporalState::Lost { .. } => stands(version, now),
        TemporalState::Known(_) => {
            matches!(facts.state(version), VersionState::Current | VersionState::Ramping)
                || pinned_workflows(version).is_some_and(|pinned| pinned > 0)
        }
    };
    let is_ours =
        |version: &&Version| version.workers.is_some() || (version.has_revision && facts.is_ours(version));
    facts.versions.values().filter(is_used).filter(is_ours).filter(|_| !facts.delete_now)
}

/// True if a version has workers, or workflows may need those that somebody deleted.
fn has_to_drain(facts: &Facts, version: &Version, now: DateTime<Utc>) -> bool {
    let is_known = version.listed.is_some() || version.was_listed();
    let is_lost = is_known && version.has_revision && facts.is_ours(version) && !is_over(version, now);
    version.workers.is_some() || is_lost
}

/// When the last version became idle, which may be long after the deletion began.
fn last_idle_at(facts: &Facts, since: DateTime<Utc>) -> DateTime<Utc> {
    let drained = facts.versions.values().filter_map(|version| version.record.as_ref()?.drained_since);
    drained.max().map_or(since, |last| last.max(since))
}

/// True if a count of zero is reliable: Temporal reports the version as drained, or it has been idle for a while.
fn is_over(version: &Version, now: DateTime<Utc>) -> bool {
    let is_drained = version.was_active() && version.drained().is_some();
    let since = version.record.as_ref().and_then(|record| record.drained_since);
    is_drained || since.is_some_and(|since| now >= since + IDLE)
}

/// The number of workflows pinned to a version; `None`: they have to be counted. That includes a version that
/// Temporal does not know: a person may have deleted its record.
fn pinned_workflows(version: &Version) -> Option<u64> {
    version.running.map(|running| running.pinned)
}

/// The step under `windlass.dev/delete: now`: route the tasks away, then delete without waiting. Windlass does not
/// change a deployment that another identity manages.
fn without_waiting(facts: &Facts) -> Step {
    let described = facts.described().filter(|_| facts.other_manager().is_none());
    if let Some(write) = described.and_then(|described| routing_to_release(facts, described)) {
        return Step::Write(write);
    }
    let workers: Vec<BuildId> =
        facts.versions.values().filter(|v| v.workers.is_some()).map(|v| v.build.clone()).collect();
    if workers.is_empty() {
        return if facts.is_manager() { Step::Release } else { Step::Done };
    }
    let message = "deleting the workers of all versions, including those with running workflows".to_owned();
    Step::Take { workers, records: Vec::new(), count: Vec::new(), message }
}
