//! How a WorkerDeployment goes: what is given back, and in which order. It never waits for what may never come: records that
//! Temporal does not give up because somebody still polls for them are left to it.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::{Facts, Temporal, Version};
use super::routing::lost;
use super::routing::{Next, owned};
use crate::api::{DeletionPolicy, Reason, VersionState};
use crate::port::{BuildId, RoutingWrite};

/// How long a record in Temporal is waited for whose workers are gone: it remembers pollers for five minutes.
const RECORD_PATIENCE: TimeDelta = TimeDelta::minutes(10);
/// How long it is waited for that Temporal takes a manager away, where all else stays as it is.
const MANAGER_PATIENCE: TimeDelta = TimeDelta::minutes(1);

/// What is to be done for a WorkerDeployment that is deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The routing is given back.
    Write(RoutingWrite),
    /// The deployment in Temporal is left without a manager.
    Release,
    /// These Deployments go; and of these versions the number of workflows has to be counted first.
    Take {
        /// Whose Deployments go.
        workers: Vec<BuildId>,
        /// Which versions Temporal is to forget.
        records: Vec<BuildId>,
        /// Which are to be counted.
        count: Vec<BuildId>,
        /// What is waited for, in a sentence.
        message: String,
    },
    /// All is waited for.
    Wait {
        /// Why.
        reason: Reason,
        /// For what, in a sentence.
        message: String,
    },
    /// Nothing is left: the object may go.
    Done,
}

/// What is to be done next.
#[must_use]
pub fn step(facts: &Facts, now: DateTime<Utc>) -> Step {
    let since = facts.deleted_at.unwrap_or(now);
    if facts.spec.deletion_policy == DeletionPolicy::Retain {
        let waits = now < since + MANAGER_PATIENCE;
        return if facts.is_manager() && waits { Step::Release } else { Step::Done };
    }
    if facts.delete_now {
        return at_once(facts);
    }
    let Temporal::Known(described) = &facts.temporal else {
        let Next::Wait { reason, message, .. } = lost(facts) else { return Step::Done };
        let message = format!(
            "no workers are taken away before Temporal says what runs on them ({message}); windlass delete --now waits for nothing"
        );
        return Step::Wait { reason, message };
    };
    let ours = |build: Option<&BuildId>| build.is_some_and(|build| facts.versions.contains_key(build));
    let routes_here = ours(described.routing.current.as_ref()) || described.routing.ramp.is_some();
    if routes_here {
        if facts.other_manager().is_some() {
            let Next::Wait { reason, message, .. } = owned(facts) else { return Step::Done };
            return Step::Wait { reason, message };
        }
        let ramps = described.routing.ramp.is_some();
        return Step::Write(if ramps { RoutingWrite::ClearRamp } else { RoutingWrite::Current(None) });
    }
    take(facts, since, now)
}

fn take(facts: &Facts, since: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let (mut workers, mut records, mut count) = (Vec::new(), Vec::new(), Vec::new());
    let mut waits: Option<String> = None;
    let mut says = |sentence: String| {
        waits.get_or_insert(sentence);
    };
    for version in facts.versions.values() {
        let build = version.build.clone();
        if let Some(there) = &version.workers {
            match runs(facts, version) {
                None => {
                    count.push(build.clone());
                    says(format!("workflows on {build} are counted"));
                }
                Some(0) if there.is_terminating => {
                    says(format!("Deployment {} is being deleted", there.name));
                }
                Some(0) => {
                    workers.push(build.clone());
                    says(format!("Deployment {} goes", there.name));
                }
                Some(pinned) => says(format!(
                    "{pinned} workflows still run on {build}; its workers go when they have ended, or with windlass delete --now"
                )),
            }
            continue;
        }
        let patience =
            version.record.as_ref().and_then(|r| r.drained_since).unwrap_or(since) + RECORD_PATIENCE;
        let patience = patience.max(since + RECORD_PATIENCE);
        if version.listed.is_some() && now < patience {
            records.push(build.clone());
            says(format!(
                "Temporal is asked to forget {build}, which it does some minutes after its last worker has gone"
            ));
        }
    }
    match waits {
        Some(message) => Step::Take { workers, records, count, message },
        None if facts.is_manager() && now < since + RECORD_PATIENCE => Step::Release,
        None => Step::Done,
    }
}

/// How many workflows are pinned to a version; none: that has to be counted.
fn runs(facts: &Facts, version: &Version) -> Option<u64> {
    if let Some(running) = version.running {
        return Some(running.pinned);
    }
    match facts.state(version) {
        // Nothing could ever be pinned to it.
        VersionState::NotRegistered if !version.was_listed() || version.is_forgotten => Some(0),
        _ => None,
    }
}

fn at_once(facts: &Facts) -> Step {
    let workers: Vec<BuildId> =
        facts.versions.values().filter(|v| v.workers.is_some()).map(|v| v.build.clone()).collect();
    if workers.is_empty() {
        return Step::Done;
    }
    let message = "the workers of all versions go, whatever runs on them".to_owned();
    Step::Take { workers, records: Vec::new(), count: Vec::new(), message }
}
