//! Decides whether a rollout or an evacuation starts, continues, or is superseded.

use windlass_core::api::OnHookFailure;
use windlass_core::api::at_hook::message_of;
use windlass_engine::{Plan, held_by};

use super::evacuate::{self, Evacuation, PendingEvacuation, PlanKind};
use super::facts::{Facts, TemporalState};
use super::hooks;
use crate::api::{OnFailure, Reason};

/// The next action for the plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Keep the active plan, if any; start none.
    Keep,
    /// The target already runs: record it as completed, without a plan.
    Record,
    /// Start a rollout; an active evacuation ends.
    Start(Cause),
    /// Start an evacuation; another active one ends.
    Evacuate(Evacuation),
    /// Record that a requested evacuation is not possible.
    RefuseEvacuation {
        /// The cause, in a sentence.
        message: String,
    },
    /// End the active rollout and start another.
    Supersede,
    /// End the active rollout and start none: the target already runs, or cannot be rolled out.
    End,
    /// Roll back the active rollout and reject its target.
    RollBack {
        /// The reason of the rollback.
        reason: Reason,
        /// The cause, in a sentence.
        message: String,
    },
    /// Abort the active plan, because a person requested it.
    Abort,
    /// A rollout is due but not allowed.
    Refuse {
        /// The reason for the refusal.
        reason: Reason,
        /// The cause, in a sentence.
        message: String,
    },
}

/// The cause of a rollout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The spec's version changed.
    TemplateChanged,
    /// A person requested a retry.
    RetryRequested,
    /// The running version no longer matches the target.
    ChildDrift,
}

impl Cause {
    /// The corresponding reason in status and events.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::TemplateChanged => Reason::TemplateChanged,
            Self::RetryRequested => Reason::RetryRequested,
            Self::ChildDrift => Reason::ChildDrift,
        }
    }
}

/// The requests that a person made with annotations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AnnotationRequests {
    /// The ID of the plan to abort.
    pub abort: Option<String>,
    /// The value of the retry annotation, unless Windlass already acted on it.
    pub retry: Option<String>,
    /// The request of an evacuation, unless Windlass already acted on it.
    pub evacuation: Option<PendingEvacuation>,
}

impl AnnotationRequests {
    /// The ID of the plan to retry. A different suffix after `/` is a new request, so that a person can retry the same
    /// plan several times.
    #[must_use]
    pub fn retried_plan(&self) -> Option<&str> {
        self.retry.as_deref()?.split('/').next()
    }
}

/// Decides the next action for the plan.
#[must_use]
pub fn decide(facts: &Facts, plan: Option<&Plan>, requests: &AnnotationRequests) -> Decision {
    if facts.deleted_at.is_some() {
        return Decision::Keep;
    }
    if let Some(evacuation) = evacuate::active(plan) {
        return of_evacuation(facts, evacuation, requests);
    }
    match plan.filter(|plan| plan.is_active()) {
        Some(plan) => of_active(facts, plan, requests),
        None => or_evacuation(of_rest(facts, plan, requests), facts, requests),
    }
}

/// An evacuation leaves the target and the routing alone, so a rollout may be due meanwhile.
fn of_evacuation(facts: &Facts, plan: &Plan, requests: &AnnotationRequests) -> Decision {
    if requests.abort.as_deref() == Some(plan.id.as_str()) {
        return Decision::Abort;
    }
    let rest = of_rest(facts, Some(plan), requests);
    if evacuate::is_replaceable(plan) {
        // A request that is not possible stays until this evacuation has ended.
        return match or_evacuation(rest.clone(), facts, requests) {
            Decision::RefuseEvacuation { .. } => rest,
            decision => decision,
        };
    }
    match rest {
        Decision::Start(_) if evacuate::holds_rollouts(plan) => Decision::Keep,
        rest => rest,
    }
}

/// A requested evacuation starts if no rollout is due.
fn or_evacuation(rest: Decision, facts: &Facts, requests: &AnnotationRequests) -> Decision {
    let (Decision::Keep | Decision::Refuse { .. }, TemporalState::Known(_), Some(pending)) =
        (&rest, &facts.temporal, &requests.evacuation)
    else {
        return rest;
    };
    let request = pending.request.as_ref().map_err(Clone::clone);
    match request.and_then(|request| Evacuation::checked(facts, request)) {
        Ok(evacuation) => Decision::Evacuate(evacuation),
        Err(message) => Decision::RefuseEvacuation { message },
    }
}

fn of_active(facts: &Facts, plan: &Plan, requests: &AnnotationRequests) -> Decision {
    if requests.abort.as_deref() == Some(plan.id.as_str()) {
        return Decision::Abort;
    }
    if plan.target_hash != facts.target.hash {
        if facts.invalid.is_some() || facts.unchecked.is_some() {
            // The new spec is or may be invalid: the active rollout is obsolete, but no other can start.
            return Decision::Keep;
        }
        // Without the routing, the starting point of a rollout is unknown.
        let TemporalState::Known(_) = facts.temporal else { return Decision::Keep };
        if limit(facts).is_some() || is_rejected(facts, requests) || facts.is_at_target() {
            return Decision::End;
        }
        return Decision::Supersede;
    }
    let Some(failed) = held_by(plan) else { return Decision::Keep };
    let (reason, goes_back) = match hooks::on_failure(plan, &facts.spec.hooks) {
        Some(leads_to) => (Reason::HookFailed, leads_to == OnHookFailure::Rollback),
        None => (Reason::GateFailed, facts.spec.rollout.on_failure == OnFailure::Rollback),
    };
    if goes_back {
        return Decision::RollBack { reason, message: message_of(failed) };
    }
    Decision::Keep
}

fn of_rest(facts: &Facts, last: Option<&Plan>, requests: &AnnotationRequests) -> Decision {
    let TemporalState::Known(_) = facts.temporal else { return Decision::Keep };
    if facts.is_at_target() {
        let is_recorded =
            facts.status.last_completed_rollout_hash.as_deref() == Some(facts.target.hash.as_str());
        return if is_recorded { Decision::Keep } else { Decision::Record };
    }
    if facts.invalid.is_some() || facts.unchecked.is_some() || is_rejected(facts, requests) {
        return Decision::Keep;
    }
    if let Some(message) = limit(facts) {
        return Decision::Refuse { reason: Reason::VersionLimitReached, message };
    }
    let is_retry = facts.status.rejected.as_ref().is_some_and(|rejected| rejected.hash == facts.target.hash);
    let was_completed =
        facts.status.last_completed_rollout_hash.as_deref() == Some(facts.target.hash.as_str());
    let went_wrong = last.is_some_and(|plan| {
        plan.target_hash == facts.target.hash || PlanKind::of(plan) == PlanKind::Evacuation
    });
    Decision::Start(if is_retry {
        Cause::RetryRequested
    } else if was_completed && went_wrong {
        Cause::ChildDrift
    } else {
        Cause::TemplateChanged
    })
}

/// True if the target was rejected and nobody requested a retry of it.
fn is_rejected(facts: &Facts, requests: &AnnotationRequests) -> bool {
    let Some(rejected) = &facts.status.rejected else { return false };
    rejected.hash == facts.target.hash && requests.retried_plan() != Some(rejected.plan_id.as_str())
}

/// Why no new version may be created, in a sentence; `None` if one may be, or none is needed.
#[must_use]
pub fn limit(facts: &Facts) -> Option<String> {
    let exists =
        facts.target_version().is_some_and(|version| version.workers.is_some() || version.listed.is_some());
    let count = facts.version_count();
    let most = facts.spec.max_versions as usize;
    (!exists && count >= most).then(|| {
        format!(
            "{count} versions exist, and spec.maxVersions is {most}: Windlass does not create {} until another version is deleted",
            facts.target.build
        )
    })
}
