//! Forecasts what the operator would do with a spec: the same decisions, on what the status recorded of Temporal.

use chrono::{DateTime, Utc};
use serde::Serialize;
use windlass_core::api::Ending;
use windlass_engine::Plan;

use super::Target;
use super::begin;
use super::decide::{AnnotationRequests, Decision, decide};
use super::evacuate;
use super::facts::Facts;
use super::recipe::{Direction, direction, runs_another_template};
use crate::api::{Reason, VersionState, WorkerDeploymentStatus};
use crate::port::{
    ConflictToken, DescribedDeployment, Drainage, DrainageStatus, Percent, Ramp, RampTarget, Routing,
    VersionStatus, VersionSummary,
};

/// How the target takes over.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Takeover {
    /// It is the current version already.
    None,
    /// As a new version: its workers run in a Deployment of their own.
    NewVersion,
    /// In place: its build ID has workers with another template, which are replaced.
    InPlace,
    /// At once: it was current before, and its workers run.
    AtOnce,
}

/// What the operator would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// How the target takes over.
    pub takeover: Takeover,
    /// The decision about the plan.
    pub decision: Decision,
    /// The plan that is active then: a new one, or the one that is active now.
    pub plan: Option<Plan>,
}

/// Forecasts the next decision, and the plan that follows from it.
#[must_use]
pub fn forecast(
    facts: &Facts,
    plan: Option<&Plan>,
    requests: &AnnotationRequests,
    now: DateTime<Utc>,
) -> Forecast {
    let decision = decide(facts, plan, requests);
    let new = |cause: Reason| Some(begin::plan(facts, plan, cause, 0, now));
    let then = match &decision {
        Decision::Start(cause) => new(cause.reason()),
        Decision::Supersede => new(Reason::Superseded),
        Decision::Keep => evacuate::rollout(plan).filter(|plan| plan.is_active()).cloned(),
        Decision::Record
        | Decision::End
        | Decision::Evacuate(_)
        | Decision::RefuseEvacuation { .. }
        | Decision::RollBack { .. }
        | Decision::Abort
        | Decision::Refuse { .. } => None,
    };
    Forecast { takeover: takeover(facts), decision, plan: then }
}

fn takeover(facts: &Facts) -> Takeover {
    if facts.is_at_target() {
        return Takeover::None;
    }
    if runs_another_template(facts) {
        return Takeover::InPlace;
    }
    match direction(facts) {
        Direction::Back => Takeover::AtOnce,
        Direction::New => Takeover::NewVersion,
    }
}

/// The deployment in Temporal, as the status recorded it.
#[must_use]
pub fn recorded(status: &WorkerDeploymentStatus, target: &Target) -> DescribedDeployment {
    let ramp = status.ramping_build_id.clone().zip(status.ramp_percent);
    let ramp = ramp.map(|(build, percent)| Ramp {
        to: RampTarget::Version(build),
        percent: Percent(f32::from(u8::try_from(percent).unwrap_or_default())),
    });
    let completed = |entry: &windlass_core::api::HistoryEntry| {
        entry.outcome == Ending::Complete.as_ref() && entry.target_hash == target.hash
    };
    let was_target = status.last_completed_rollout_hash.as_ref() == Some(&target.hash)
        || status.history.iter().any(completed);
    let versions = status.versions.iter().filter_map(|record| {
        let build = record.build_id.clone();
        let is_current = status.current_build_id.as_ref() == Some(&build);
        let was_current = is_current || (was_target && build == target.build);
        let (version, was_active) = match record.state {
            VersionState::NotRegistered => return None,
            VersionState::Inactive => (VersionStatus::Inactive, was_current),
            VersionState::Ramping => (VersionStatus::Ramping, true),
            VersionState::Current => (VersionStatus::Current, true),
            VersionState::Draining => (VersionStatus::Draining, true),
            VersionState::Drained => (VersionStatus::Drained, true),
        };
        let drained =
            Drainage { status: DrainageStatus::Drained, changed: record.drained_since, checked: None };
        Some(VersionSummary {
            build,
            status: version,
            created: record.since,
            first_activated: record.since.filter(|_| was_active),
            last_current: record.since.filter(|_| was_current),
            last_deactivated: None,
            drainage: (version == VersionStatus::Drained).then_some(drained),
        })
    });
    DescribedDeployment {
        conflict_token: ConflictToken::default(),
        routing: Routing { current: status.current_build_id.clone(), ramp },
        is_settled: true,
        manager: None,
        last_modifier: None,
        versions: versions.collect(),
    }
}
