//! How a WorkerDeployment goes: what is given back, and in which order. It never waits for what may never come: records that
//! Temporal does not give up because somebody still polls for them are left to it.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::{Facts, Temporal, Version};
use super::routing::{Next, lost, owned};
use super::sunset::IDLE;
use crate::api::{DeletionPolicy, Reason};
use crate::port::{BuildId, DescribedDeployment, RampTarget, RoutingWrite};

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
        return retain(facts, !facts.delete_now && now < since + MANAGER_PATIENCE);
    }
    if facts.delete_now {
        return at_once(facts);
    }
    let Temporal::Known(described) = &facts.temporal else { return unsaid(facts, since, now) };
    if let Some(write) = to_give_back(facts, described) {
        if facts.other_manager().is_some() {
            let Next::Wait { reason, message, .. } = owned(facts) else { return Step::Done };
            let message = format!("{message}; windlass delete --now leaves it to them and waits for nothing");
            return Step::Wait { reason, message };
        }
        return Step::Write(write);
    }
    take(facts, since, now)
}

/// Temporal does not say how it stands. Workers that are there stay. Where none are, because Temporal was never found or since
/// their namespace is going, too, nothing is left that could be lost: what Temporal still knows is given back if it can be within
/// some minutes.
fn unsaid(facts: &Facts, since: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let Next::Wait { reason, message, .. } = lost(facts) else { return Step::Done };
    let has_workers = facts.versions.values().any(|version| version.workers.is_some());
    if has_workers {
        let message = format!(
            "no workers are taken away before Temporal says what runs on them ({message}); windlass delete --now waits for nothing"
        );
        return Step::Wait { reason, message };
    }
    let was_known = facts.versions.values().any(Version::was_listed);
    if !was_known || now >= since + RECORD_PATIENCE {
        return Step::Done;
    }
    let message = format!(
        "its workers are gone, and for {} min from its deletion on it is tried to have Temporal forget them ({message}); windlass \
         delete --now waits for nothing",
        RECORD_PATIENCE.num_minutes()
    );
    Step::Wait { reason, message }
}

/// All stays as it is, but that somebody else may manage it from now on.
fn retain(facts: &Facts, waits: bool) -> Step {
    match &facts.temporal {
        Temporal::Known(_) if facts.is_manager() && (waits || facts.delete_now) => Step::Release,
        // Whether it is managed from here is not known just now.
        Temporal::Lost { reason, message } if waits && !facts.status.versions.is_empty() => {
            Step::Wait { reason: *reason, message: message.clone() }
        }
        _ => Step::Done,
    }
}

/// What of the routing leads to versions of this object.
fn to_give_back(facts: &Facts, described: &DescribedDeployment) -> Option<RoutingWrite> {
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
    let mut waits: Option<String> = None;
    let mut says = |sentence: String| {
        waits.get_or_insert(sentence);
    };
    for version in facts.versions.values() {
        let build = version.build.clone();
        if let Some(there) = &version.workers {
            match runs(version) {
                None => {
                    count.push(build.clone());
                    says(format!("workflows on {build} are counted"));
                }
                Some(0) if there.is_terminating => {
                    says(format!("Deployment {} is being deleted", there.name));
                }
                Some(0) if !is_over(version, now) => says(format!(
                    "no workflow was found on {build}; its workers go once that has been so for {} s, since what is counted lags",
                    IDLE.num_seconds()
                )),
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
        if version.listed.is_some() && facts.is_ours(version) && now < patience {
            records.push(build.clone());
            says(format!(
                "Temporal is asked to forget {build}, which it does some minutes after its last worker has gone"
            ));
        }
    }
    match waits {
        Some(message) => Step::Take { workers, records, count, message },
        None if facts.is_manager() && now < last_gone(facts, since) + RECORD_PATIENCE + MANAGER_PATIENCE => {
            Step::Release
        }
        None => Step::Done,
    }
}

/// When the last of the versions had nothing to do any more, which may be long after the deletion.
fn last_gone(facts: &Facts, since: DateTime<Utc>) -> DateTime<Utc> {
    let drained = facts.versions.values().filter_map(|version| version.record.as_ref()?.drained_since);
    drained.max().map_or(since, |last| last.max(since))
}

/// Whether it may be relied on that nothing was found to run on a version: Temporal says that it is drained, or it has been so for
/// a while.
fn is_over(version: &Version, now: DateTime<Utc>) -> bool {
    let is_drained = version.was_active() && version.drained().is_some();
    let since = version.record.as_ref().and_then(|record| record.drained_since);
    is_drained || since.is_some_and(|since| now >= since + IDLE)
}

/// How many workflows are pinned to a version; none: that has to be counted. Also of one that Temporal does not know: somebody
/// may have deleted its record.
fn runs(version: &Version) -> Option<u64> {
    version.running.map(|running| running.pinned)
}

/// Nothing is waited for, and yet tasks are to lead nowhere first. What another manages is left to them.
fn at_once(facts: &Facts) -> Step {
    let described = facts.described().filter(|_| facts.other_manager().is_none());
    if let Some(write) = described.and_then(|described| to_give_back(facts, described)) {
        return Step::Write(write);
    }
    let workers: Vec<BuildId> =
        facts.versions.values().filter(|v| v.workers.is_some()).map(|v| v.build.clone()).collect();
    if workers.is_empty() {
        return if facts.is_manager() { Step::Release } else { Step::Done };
    }
    let message = "the workers of all versions go, whatever runs on them".to_owned();
    Step::Take { workers, records: Vec::new(), count: Vec::new(), message }
}
