//! From a reconcile to the status that it writes: the facts under that status, whether the write is urgent, and when
//! the fleet is requeued if no event arrives. Pure.

use crate::planner::fleet::Rollout;
use chrono::{DateTime, Utc};

use super::child::GrantTime;
use super::facts::FleetFacts;
use super::hooks::AtHook;
use super::progress;
use super::status::{generated_build_id, stall_deadline};
use crate::api::conditions::{self, READY, RECONCILING, ROLLOUT_IN_PROGRESS, STALLED, Truth, UP_TO_DATE};
use crate::api::{NodeDeploymentSpec, NodeDeploymentStatus, OnStall, Reason, RetiringSet, Stage};
use crate::engine::Plan;
use crate::planner::hooks::step_of;
use crate::revision::main_image;

/// What a reconcile found in addition to its plan, for the status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Findings {
    /// What could not be applied, although everything else continues, in a sentence.
    pub not_applied: Option<String>,
    /// The fields of the fleet's own objects that admission reverts, in a sentence.
    pub reverted: Option<String>,
    /// What keeps a node that leaves, or a set that has to be removed, in a sentence.
    pub waits_for: Option<String>,
}

/// The facts under the status that is about to be written, including what it newly accepts. `plan`: the plan in that
/// status.
#[must_use]
pub fn facts_under(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    plan: Option<&Plan>,
    findings: &Findings,
) -> FleetFacts {
    // A status that was never written names no active set.
    let mut facts = status.active_set().map_or_else(|| facts.clone(), |set| facts.activated(&set));
    facts.rollout.now = Rollout::of(status);
    facts.rollout.at_hook = plan.and_then(AtHook::of);
    facts.rollout.step = plan.and_then(step_of);
    facts.findings.not_applied.clone_from(&findings.not_applied);
    facts.findings.reverted.clone_from(&findings.reverted);
    facts.findings.waits_for.clone_from(&findings.waits_for);
    if let Some(blocker) = facts.findings.blocker.take_if(|blocker| blocker.is_transient()) {
        facts.findings.waits_for = Some(blocker.to_string());
    }
    facts.record.last_completed = status.last_completed();
    facts.record.rejected = status.rejected.clone().filter(|r| facts.stays_rejected(r));
    facts
}

/// The desired build ID: the one in the spec, the one under which the revision is being promoted, or one that is
/// generated from the image and the hash.
#[must_use]
pub fn build_id(status: &NodeDeploymentStatus, facts: &FleetFacts, spec: &NodeDeploymentSpec) -> String {
    let is_promoting = facts.rollout.now.set().is_some_and(|r| r.stage == Stage::Promoting);
    match &facts.spec.build_id {
        Some(own) => own.to_string(),
        None if is_promoting && !status.build_id.is_empty() => status.build_id.clone(),
        None => {
            generated_build_id(main_image(&spec.template.spec).unwrap_or_default(), facts.requested.as_str())
        }
    }
}

/// Clears the records of completed requests that no longer exist. `retry`: the value of the retry annotation.
pub fn clear_completed_requests(status: &mut NodeDeploymentStatus, spec: &NodeDeploymentSpec, retry: &str) {
    status.hook_retry = status.hook_retry.take().filter(|obeyed| obeyed.request == retry);
    if status.spent_force_promote != spec.force_promote {
        status.spent_force_promote.clear();
    }
}

/// Updates the status of a fleet whose spec cannot be read.
pub fn spec_is_unreadable(
    status: &mut NodeDeploymentStatus,
    sentence: &str,
    generation: i64,
    now: DateTime<Utc>,
) {
    for (type_, truth) in [(UP_TO_DATE, Truth::False), (STALLED, Truth::True)] {
        conditions::set(&mut status.conditions, type_, truth, Reason::InvalidSpec, sentence, generation, now);
    }
    for (type_, reason) in [
        (READY, Reason::NotStarted),
        (ROLLOUT_IN_PROGRESS, Reason::NotStarted),
        (RECONCILING, Reason::Settled),
    ] {
        if conditions::find(&status.conditions, type_).is_none() {
            conditions::set(&mut status.conditions, type_, Truth::False, reason, "", generation, now);
        }
    }
    status.observed_generation = generation;
}

/// True if a status contains a change that others act on or wait for. Its write is not delayed, as that of plain
/// progress is.
#[must_use]
pub fn is_news(before: &NodeDeploymentStatus, after: &NodeDeploymentStatus) -> bool {
    let says = |status: &NodeDeploymentStatus, type_: &str| {
        conditions::find(&status.conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let stage = |status: &NodeDeploymentStatus| status.rollout.as_ref().map(|r| r.stage);
    let carried_out = |status: &NodeDeploymentStatus| (status.deletion_policy, status.volume_claim_retention);
    [UP_TO_DATE, ROLLOUT_IN_PROGRESS, STALLED].iter().any(|type_| says(before, type_) != says(after, type_))
        || stage(before) != stage(after)
        || carried_out(before) != carried_out(after)
}

/// The next time at which the fleet has to be reconciled even if no event arrives. When a wait is over, the clock is
/// advanced, or a node is available; when a node has had its time, the target may be blamed.
#[must_use]
pub fn next_deadline(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let removals = status.retiring.iter().map(|set| facts.removal_of(set));
    let waits = facts.nodes_of_rollout().filter_map(|child| child.health.wait).chain(facts.ending);
    let may_go_back = facts.spec.on_stall == OnStall::Rollback && status.rollout.is_some();
    let times = facts.nodes_of_rollout().filter_map(|child| match child.grant.time {
        GrantTime::Until(at) if may_go_back => Some(at),
        GrantTime::Until(_) | GrantTime::None | GrantTime::Over => None,
    });
    let due = removals.chain(waits.map(|wait| wait.until)).chain(times);
    let due = due.chain(stall_deadline(status, facts, now)).chain(progress::overdue_at(facts, now));
    due.filter(|at| *at > now).min()
}

/// True if nodes that should be deleted still exist. The cause, for example claims that have to be released, may not
/// produce an event.
#[must_use]
pub fn is_kept_from_going(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) -> bool {
    let is_kept = |set: &RetiringSet| {
        let nodes = facts.sets.get(set.set.as_str()).map(|s| s.children.as_slice()).unwrap_or_default();
        facts.removal_of(set) <= now && nodes.iter().any(|c| !c.terminating)
    };
    status.retiring.iter().any(is_kept)
        || (facts.active_set_is_removed() && facts.children.iter().any(|c| !c.terminating))
}
