//! Whether a rollout begins, goes on, or makes room for another.

use windlass_core::api::OnHookFailure;
use windlass_engine::{Plan, held_by};

use super::facts::{Facts, Temporal};
use super::hooks;
use crate::api::{OnFailure, Reason};

/// What is to be done about plans.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// What is under way goes on, and where nothing is, nothing begins.
    Keep,
    /// What is wanted is so: it is recorded as completed, without a plan.
    Record,
    /// A rollout begins.
    Start(Cause),
    /// The one under way ends, and another one begins.
    Supersede,
    /// The one under way ends, because what is wanted is so already or cannot be begun.
    End,
    /// The one under way is taken back, and its target not tried again.
    RollBack {
        /// Why.
        reason: Reason,
        /// Why, in a sentence.
        message: String,
    },
    /// The one under way is stopped, because a person said so.
    Abort,
    /// A rollout would begin, and may not.
    Refuse {
        /// Why.
        reason: Reason,
        /// Why, in a sentence.
        message: String,
    },
}

/// Why a rollout begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The spec wants another version.
    TemplateChanged,
    /// A person asked for another try.
    RetryRequested,
    /// Somebody changed what runs.
    ChildDrift,
}

impl Cause {
    /// The word.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::TemplateChanged => Reason::TemplateChanged,
            Self::RetryRequested => Reason::RetryRequested,
            Self::ChildDrift => Reason::ChildDrift,
        }
    }
}

/// What a person asked for by annotations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Asked {
    /// The plan that is to be aborted.
    pub abort: Option<String>,
    /// The words that ask for another try of a plan: obeyed once.
    pub retry: Option<String>,
}

impl Asked {
    /// The plan that is to be tried again. What follows a slash tells one wish from another: the same plan may be tried again
    /// several times.
    #[must_use]
    pub fn retried_plan(&self) -> Option<&str> {
        self.retry.as_deref()?.split('/').next()
    }
}

/// What is to be done about plans.
#[must_use]
pub fn decide(facts: &Facts, plan: Option<&Plan>, asked: &Asked) -> Decision {
    if facts.deleted_at.is_some() {
        return Decision::Keep;
    }
    match plan.filter(|plan| plan.is_active()) {
        Some(plan) => of_active(facts, plan, asked),
        None => of_rest(facts, plan, asked),
    }
}

fn of_active(facts: &Facts, plan: &Plan, asked: &Asked) -> Decision {
    if asked.abort.as_deref() == Some(plan.id.as_str()) {
        return Decision::Abort;
    }
    if plan.target_hash != facts.target.hash {
        if facts.invalid.is_some() {
            // The fix of a fix may be refused: what is under way is no longer wanted, and what is cannot begin.
            return Decision::Keep;
        }
        // Where Temporal does not say where tasks go, it is not known from where to start.
        let Temporal::Known(_) = facts.temporal else { return Decision::Keep };
        if limit(facts).is_some() || is_rejected(facts, asked) || facts.is_at_target() {
            return Decision::End;
        }
        return Decision::Supersede;
    }
    let Some(failed) = held_by(plan) else { return Decision::Keep };
    let (reason, goes_back) = match hooks::on_failure(facts, plan) {
        Some(leads_to) => (Reason::HookFailed, leads_to == OnHookFailure::Rollback),
        None => (Reason::GateFailed, facts.spec.rollout.on_failure == OnFailure::Rollback),
    };
    if goes_back {
        return Decision::RollBack { reason, message: failed.message.clone() };
    }
    Decision::Keep
}

fn of_rest(facts: &Facts, last: Option<&Plan>, asked: &Asked) -> Decision {
    let Temporal::Known(_) = facts.temporal else { return Decision::Keep };
    if facts.is_at_target() {
        let is_recorded =
            facts.status.last_completed_rollout_hash.as_deref() == Some(facts.target.hash.as_str());
        return if is_recorded { Decision::Keep } else { Decision::Record };
    }
    if facts.invalid.is_some() || is_rejected(facts, asked) {
        return Decision::Keep;
    }
    if let Some(message) = limit(facts) {
        return Decision::Refuse { reason: Reason::VersionLimitReached, message };
    }
    let is_retry = facts.status.rejected.as_ref().is_some_and(|rejected| rejected.hash == facts.target.hash);
    let was_completed =
        facts.status.last_completed_rollout_hash.as_deref() == Some(facts.target.hash.as_str());
    let went_wrong = last.is_some_and(|plan| plan.target_hash == facts.target.hash);
    Decision::Start(if is_retry {
        Cause::RetryRequested
    } else if was_completed && went_wrong {
        Cause::ChildDrift
    } else {
        Cause::TemplateChanged
    })
}

/// Whether what is wanted was given up, and nobody asked for another try.
fn is_rejected(facts: &Facts, asked: &Asked) -> bool {
    let Some(rejected) = &facts.status.rejected else { return false };
    rejected.hash == facts.target.hash && asked.retried_plan() != Some(rejected.plan_id.as_str())
}

/// Why no new version may be made, in a sentence, if none may and one would have to be.
#[must_use]
pub fn limit(facts: &Facts) -> Option<String> {
    let exists =
        facts.target_version().is_some_and(|version| version.workers.is_some() || version.listed.is_some());
    let count = facts.version_count();
    let most = facts.spec.max_versions as usize;
    (!exists && count >= most).then(|| {
        format!(
            "there are {count} versions, and spec.maxVersions is {most}: no version is made for {} until one has gone",
            facts.target.build
        )
    })
}
