//! Decides the next step of the tasks that wait.

use chrono::{DateTime, TimeDelta, Utc};
use windlass_core::api::names::argument_of;

use super::facts::Facts;
use super::routing::{Next, lost};
use crate::api::Reason;

/// The next step of the task that waits for the target's workers.
#[must_use]
pub fn await_available(facts: &Facts) -> Next {
    let target = &facts.target.build;
    let Some(version) = facts.target_version().filter(|version| version.workers.is_some()) else {
        return Next::wait(
            Reason::WorkersNotReady,
            format!("waiting for the Deployment of {target} to be created"),
        );
    };
    let Some(workers) = facts.pools_in_need(version).find(|pool| !pool.are_available()) else {
        return match facts.unapplied(version) {
            Some(sentence) => Next::wait(Reason::WorkersNotReady, sentence),
            None => Next::Done,
        };
    };
    if workers.replicas == 0 {
        let message = format!("waiting for Deployment {} to be scaled up: it has 0 replicas", workers.name);
        return Next::wait(Reason::WorkersNotReady, message);
    }
    let complaint = workers.complaint.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    Next::wait(
        Reason::WorkersNotReady,
        format!(
            "waiting for the workers of {target}: {} of {} replicas of Deployment {} are available{complaint}",
            workers.available, workers.replicas, workers.name
        ),
    )
}

/// The next step of the task that waits for Temporal to list the target. At its limit of versions, Temporal never
/// lists it, and returns no error to any client.
#[must_use]
pub fn await_registered(facts: &Facts, began: DateTime<Utc>, now: DateTime<Utc>) -> Next {
    let Some(described) = facts.described() else { return lost(facts) };
    let target = &facts.target.build;
    let version = facts.target_version();
    if let Some(version) = version.filter(|version| version.listed.is_some()) {
        // To which pool a poller belongs is not known.
        if version.pollers.is_some_and(|pollers| pollers > 0) || facts.is_scaled_to_zero(version) {
            return Next::Done;
        }
        let message = format!("waiting for the workers of {target} to poll Temporal");
        return Next::wait(Reason::WaitingForPollers, message);
    }
    let patience = TimeDelta::seconds(i64::from(facts.spec.progress_deadline_seconds));
    let count = described.versions.len();
    if count > 0 && now >= began + patience {
        return Next::wait(
            Reason::VersionLimitReached,
            format!(
                "the workers of {target} run, but Temporal does not list their version. It lists {count} versions of {}; the limit \
                 is 100 by default. Delete drained versions, or check in the workers' log that they reach Temporal with the \
                 deployment name and the build ID from their environment",
                facts.deployment
            ),
        );
    }
    let message = format!(
        "waiting for Temporal to list {target}: its workers have to poll {}",
        facts.connection.address
    );
    Next::wait(Reason::WaitingForPollers, message)
}

/// The next step of the task that waits for a promotion, by Windlass or in Temporal.
#[must_use]
pub fn await_promote(facts: &Facts) -> Next {
    if facts.is_promoted() || facts.current() == Some(&facts.target.build) {
        return Next::Done;
    }
    Next::wait(
        Reason::ReadyToPromote,
        format!(
            "{} is ready to be promoted: run windlass promote {}, or set spec.forcePromote to {}",
            facts.target.build,
            argument_of("wwd", &facts.name, &facts.namespace),
            facts.target.hash
        ),
    )
}
