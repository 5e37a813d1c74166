//! Computes a fleet's five conditions. Pure.

use chrono::{DateTime, SecondsFormat, Utc};

use super::blocker::Blocker;
use super::child::ChildFacts;
use super::decision::{Cause, RolloutTarget};
use super::facts::{FleetFacts, FleetKind};
use super::failed::why_held;
use super::gate::Gate;
use super::status::{RefreshInput, short, stall_deadline};
use super::{drain, hooks, initial_fill, leave, progress, sets};
use crate::api::conditions::{self, READY, RECONCILING, ROLLOUT_IN_PROGRESS, STALLED, Truth, UP_TO_DATE};
use crate::api::{Ending, NodeDeploymentStatus, Reason, Rejected, Stage, Unconverged};
use crate::engine::Plan;
use crate::engine::sentence::some_of;

/// Updates the conditions.
pub(super) fn refresh_conditions(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    stalled: bool,
    rollout_target: &RolloutTarget,
    input: &RefreshInput<'_>,
) {
    let now = input.now;
    let held = why_held(status, input.plan);
    let held = held.as_deref();
    // The first creation of a fleet, and filling it again, are not rollouts, but can stall as well.
    let why = || match &status.rollout {
        Some(_) => why_stalled(status, facts, now),
        None => overdue(status, facts, now, &initial_fill::waits_for(facts, input.name, rollout_target, now)),
    };
    let why = stalled.then(why);
    let why = why.as_deref();
    let verdicts = [
        (READY, ready(status, facts, now)),
        (
            UP_TO_DATE,
            append_lost_revision(
                up_to_date(status, facts, rollout_target, input, (held, why)),
                status,
                facts,
            ),
        ),
        (ROLLOUT_IN_PROGRESS, in_progress(status, facts, stalled || held.is_some(), rollout_target)),
        (STALLED, stalled_condition(status, facts, (held, why))),
    ];
    for (type_, (truth, reason, message)) in verdicts {
        conditions::set(&mut status.conditions, type_, truth, reason, &message, input.generation, input.now);
    }
    let stands = conditions::is_true(&status.conditions, STALLED);
    let filling = status.last_completed_rollout_hash.is_empty() && facts.spec.replicas > 0;
    let is_applying = conditions::find(&status.conditions, UP_TO_DATE)
        .is_some_and(|c| c.reason == Reason::Applying.as_ref());
    let all_ready = conditions::is_true(&status.conditions, READY) || facts.spec.replicas == 0;
    let busy = !stands
        && (status.rollout.is_some()
            || filling
            || is_applying
            || !all_ready
            || !status.retiring.is_empty()
            || facts.findings.waits_for.is_some()
            || drain::is_moving_any(facts)
            || !facts.children.iter().all(|c| !c.surplus));
    let (truth, reason) =
        if busy { (Truth::True, Reason::Progressing) } else { (Truth::False, Reason::Settled) };
    let kept = status.retiring.iter().find_map(|set| facts.kept(set));
    let is_at_rest = status.rollout.is_none();
    let leaving = leave::waits_for(facts).filter(|_| is_at_rest);
    let at_hooks = hooks::waits_for(facts, input.name, input.namespace).filter(|_| is_at_rest);
    let waits = kept.or_else(|| facts.findings.waits_for.clone()).into_iter().chain(leaving).chain(at_hooks);
    let waits = waits.chain(drain::waits_for(facts));
    let mut kept = waits.collect::<Vec<_>>().join("; ");
    // Otherwise this is the message of another condition, which changes at the same time and so costs no extra write.
    if busy && kept.is_empty() && status.rollout.is_none() {
        let said = |type_: &str| conditions::find(&status.conditions, type_).map(|c| c.message.clone());
        let of = if all_ready { UP_TO_DATE } else { READY };
        kept = match said(of).filter(|message| !message.is_empty()) {
            Some(message) => format!("waiting: {message}"),
            None => of_sets_that_go(status),
        };
    }
    conditions::set(&mut status.conditions, RECONCILING, truth, reason, &kept, input.generation, input.now);
}

/// What a fleet without problems waits for: the sets that still have to be removed.
fn of_sets_that_go(status: &NodeDeploymentStatus) -> String {
    let sets: Vec<&str> = status.retiring.iter().map(|set| set.set.as_str()).collect();
    if sets.is_empty() {
        "waiting".to_owned()
    } else {
        format!("waiting for set {} to be removed", some_of(&sets))
    }
}

type Verdict = (Truth, Reason, String);

fn verdict(truth: Truth, reason: Reason, message: impl Into<String>) -> Verdict {
    (truth, reason, message.into())
}

/// Adds that nodes cannot be recreated because the revision that last completed is lost.
fn append_lost_revision(
    (truth, reason, message): Verdict,
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
) -> Verdict {
    let is_gone = facts.record.last_completed.as_ref().is_some_and(|current| !facts.is_known(current));
    if !is_gone || facts.renderings.is_empty() {
        return (truth, reason, message);
    }
    let gone = format!(
        "ControllerRevision {}, the last completed revision, does not exist or cannot be read, and no node has a \
         copy of it: Windlass cannot recreate nodes at this revision",
        status.current_revision
    );
    (truth, reason, if message.is_empty() { gone } else { format!("{message}; {gone}") })
}

fn ready(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) -> Verdict {
    let failed: Vec<&str> =
        facts.expected_nodes().filter(|c| c.pod.failed).map(|c| c.name.as_str()).collect();
    let unready = facts.wanted().filter(|c| !c.pod.ready || c.terminating).count()
        + facts.missing().len()
        + facts.conflicts.len();
    if facts.spec.replicas == 0 {
        verdict(Truth::False, Reason::NotStarted, no_nodes(facts))
    } else if unready == 0 {
        verdict(Truth::True, Reason::AllNodesReady, "")
    } else if !failed.is_empty() {
        let first = facts.expected_nodes().find(|c| c.pod.failed).and_then(|c| c.health.problem.as_ref());
        let why = first.map(|p| format!(": {}: {}", p.reason, p.message)).unwrap_or_default();
        verdict(Truth::False, Reason::NodesFailed, format!("{} failed{why}", failed.join(", ")))
    } else if facts.children.is_empty() && status.last_completed_rollout_hash.is_empty() {
        verdict(Truth::False, Reason::NotStarted, "no node exists yet")
    } else {
        let first = status.last_completed_rollout_hash.is_empty();
        let reason = if first { Reason::NodesInitializing } else { Reason::NodesNotReady };
        // The message names only a node that stays down for longer; naming the others would only cost writes.
        let why = progress::overdue(facts, now).map(|why| format!("; {why}")).unwrap_or_default();
        verdict(
            Truth::False,
            reason,
            format!("{unready} of {} nodes are not ready{why}", facts.spec.replicas),
        )
    }
}

/// Why no node is desired.
fn no_nodes(facts: &FleetFacts) -> String {
    let own =
        if facts.kind == FleetKind::Pods { "the StatefulSets have no replicas" } else { "replicas is 0" };
    facts
        .findings
        .waits_for
        .clone()
        .filter(|_| facts.kind == FleetKind::Pods)
        .unwrap_or_else(|| own.to_owned())
}

fn invalid(status: &NodeDeploymentStatus, facts: &FleetFacts) -> Option<String> {
    let entrants = facts.entrants();
    let conflict = || {
        let of_entrants = entrants.map(|s| s.conflicts.as_slice()).unwrap_or_default();
        facts.conflicts.iter().chain(of_entrants).next().map(|c| c.message.clone())
    };
    // If the name of one of a node's own objects is taken, the node's controller detects it.
    let of_node = || {
        let refused = |c: &&ChildFacts| {
            c.health.problem.as_ref().is_some_and(|p| p.reason == Reason::InvalidSpec.as_ref())
        };
        let of_entrants = entrants.map(|s| s.children.as_slice()).unwrap_or_default();
        let child = facts.wanted().chain(of_entrants).find(refused)?;
        child.health.problem.as_ref().map(|p| format!("{}: {}", child.name, p.message))
    };
    // A user who has to look at a failed plan looks at its nodes as well.
    let rests = || facts.record.rejected.is_none().then_some(&status.retiring);
    let undecided = || rests()?.iter().find_map(|set| facts.unproven(set));
    let not_applied = || facts.findings.not_applied.clone();
    // It does not block a rollout, so the state of the rollout comes first.
    let is_at_rest = status.rollout.is_none() && facts.record.rejected.is_none();
    let reverted = || facts.findings.reverted.clone().filter(|_| is_at_rest);
    let found = facts
        .findings
        .blocker
        .as_ref()
        .map(Blocker::to_string)
        .or_else(conflict)
        .or_else(of_node)
        .or_else(undecided);
    found.or_else(not_applied).or_else(reverted)
}

fn up_to_date(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    input: &RefreshInput<'_>,
    (held, stalled): (Option<&str>, Option<&str>),
) -> Verdict {
    if let Some(sentence) = held {
        return verdict(Truth::False, Reason::PlanFailed, sentence);
    }
    if let Some(sentence) = invalid(status, facts) {
        return verdict(Truth::False, Reason::InvalidSpec, sentence);
    }
    if let Some(sentence) = hooks::failure(facts) {
        return verdict(Truth::False, Reason::HookFailed, sentence);
    }
    let retiring = status.rollout.as_ref().is_some_and(|r| r.stage == Stage::Retiring);
    if let Some(rollout) = status.rollout.as_ref().filter(|_| !retiring) {
        if let Some(why) = stalled {
            return verdict(Truth::False, Reason::Stalled, why);
        }
        // A repair does not roll out the desired target, which stays rejected.
        if let Some(rejected) = status.rejected.as_ref().filter(|_| rollout.own_revisions) {
            return rejected_condition(rejected, None);
        }
        match rollout.stage {
            Stage::Promoting => return verdict(Truth::Unknown, Reason::Promoting, rollout.message.clone()),
            Stage::AwaitingPromotion if facts.is_ready_to_promote(status) => {
                let target = &rollout.target();
                let message = sets::how_to_promote(target, *target == *status.spent_force_promote);
                return verdict(Truth::Unknown, Reason::ReadyToPromote, message);
            }
            _ => {}
        }
        if progress::is_held_by_partition(facts, rollout_target) {
            return verdict(Truth::Unknown, Reason::PartitionHeld, rollout.message.clone());
        }
        return verdict(Truth::Unknown, Reason::Applying, rollout.message.clone());
    }
    if let Some(rejected) = &status.rejected {
        return rejected_condition(rejected, input.plan);
    }
    if let Some(next) = input.next {
        return verdict(Truth::Unknown, Reason::Applying, next);
    }
    let is_unknown = facts.kind == FleetKind::Pods && facts.findings.waits_for.is_some();
    if status.last_completed() == facts.requested && !is_unknown {
        return verdict(Truth::True, Reason::Applied, "");
    }
    if facts.spec.replicas == 0 {
        return verdict(Truth::Unknown, Reason::NotStarted, no_nodes(facts));
    }
    if let Some(why) = stalled {
        return verdict(Truth::False, Reason::Stalled, why);
    }
    let waits = facts.findings.waits_for.as_deref().unwrap_or("the nodes are being created");
    verdict(Truth::Unknown, Reason::Applying, waits)
}

/// Why a target is rejected, and how to retry it. `plan`: the plan that may have failed with this target.
fn rejected_condition(rejected: &Rejected, plan: Option<&Plan>) -> Verdict {
    let (reason, what) = rejection(rejected);
    let why = because(rejected);
    let mut message = format!(
        "the rollout of {} {what}{why}; change the template, or annotate windlass.dev/retry={}",
        short(&rejected.hash),
        rejected.plan_id
    );
    if let Some(plan) = plan.filter(|p| reason == Reason::PlanFailed && !p.failure.is_empty()) {
        message = format!("{}; {message}", plan.failure);
    }
    verdict(Truth::False, reason, message)
}

fn in_progress(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    stalled: bool,
    rollout_target: &RolloutTarget,
) -> Verdict {
    if let Some(rollout) = &status.rollout {
        let reason = if facts.spec.paused {
            Reason::Paused
        } else if stalled {
            Reason::Stalled
        } else if !rollout.waiting_for.is_empty() && facts.rollout.gate != Gate::Person {
            Reason::Waiting
        } else if progress::is_held_by_partition(facts, rollout_target) {
            Reason::PartitionHeld
        } else {
            // The set is closed: a cause that this version does not know is not written into a condition.
            rollout.cause.parse::<Cause>().map_or(Reason::TemplateChanged, Reason::from)
        };
        return verdict(Truth::True, reason, rollout.summary.clone());
    }
    let reason = match status.rejected.as_ref().map(Rejected::ending) {
        Some(Some(Ending::Aborted)) => Reason::RolloutAborted,
        Some(Some(Ending::RolledBack)) => Reason::RolledBack,
        Some(_) => Reason::RolloutFailed,
        None if status.last_completed_rollout_hash.is_empty() => Reason::NotStarted,
        // A rollout that ended because no nodes were desired is not complete: it starts again when nodes are desired.
        None if status.scaled_to_zero || facts.spec.replicas == 0 => {
            let completed = status.last_completed() == facts.requested;
            if completed { Reason::RolloutComplete } else { Reason::NotStarted }
        }
        None => Reason::RolloutComplete,
    };
    verdict(Truth::False, reason, "")
}

fn stalled_condition(
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    (held, stalled): (Option<&str>, Option<&str>),
) -> Verdict {
    if let Some(sentence) = held {
        return verdict(Truth::True, Reason::PlanFailed, sentence);
    }
    if let Some(sentence) = invalid(status, facts) {
        return verdict(Truth::True, Reason::InvalidSpec, sentence);
    }
    if let Some(sentence) = hooks::failure(facts) {
        return verdict(Truth::True, Reason::HookFailed, sentence);
    }
    if status.rollout.is_none()
        && let Some(rejected) = &status.rejected
    {
        return verdict(
            Truth::True,
            rejection(rejected).0,
            format!(
                "plan {} ended{}; Windlass does not retry the target",
                rejected.plan_id,
                because(rejected)
            ),
        );
    }
    if let Some(why) = stalled {
        return verdict(Truth::True, Reason::NoProgress, why);
    }
    verdict(Truth::False, Reason::Progressing, "")
}

/// The reason of the conditions for a rejected target, and what was done with its rollout.
fn rejection(rejected: &Rejected) -> (Reason, &'static str) {
    match rejected.ending() {
        Some(Ending::Aborted) => (Reason::Aborted, "was aborted"),
        Some(Ending::RolledBack) => (Reason::RolledBack, "was rolled back"),
        _ => (Reason::PlanFailed, "failed"),
    }
}

fn because(rejected: &Rejected) -> String {
    if rejected.message.is_empty() { String::new() } else { format!(": {}", rejected.message) }
}

/// Why a rollout is stalled, in a sentence: what is overdue, since when, and after how long. It is the worst of the nodes
/// that it has moved, or of all or, if only the old set has to be removed, what is left of that set.
#[must_use]
pub fn why_stalled(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>) -> String {
    let rollout = status.rollout.as_ref();
    let listed = rollout.filter(|r| r.stage != Stage::Retiring).map_or(&[][..], |r| &r.unconverged);
    // A node that the rollout has moved comes first: another may be down for any reason.
    let is_moved = |u: &&Unconverged| facts.nodes_of_rollout().any(|c| c.name == *u.name && !c.is_spent());
    let worst = listed.iter().find(is_moved).or(listed.first());
    let message = || rollout.map(|r| r.message.clone()).unwrap_or_default();
    overdue(status, facts, now, &worst.map_or_else(message, Unconverged::sentence))
}

fn overdue(status: &NodeDeploymentStatus, facts: &FleetFacts, now: DateTime<Utc>, what: &str) -> String {
    let due = stall_deadline(status, facts, now);
    let since = due.map(|due| format!(", overdue since {}", due.to_rfc3339_opts(SecondsFormat::Secs, true)));
    let since = since.unwrap_or_default();
    format!("no progress for {} s (progressDeadlineSeconds){since}: {what}", facts.spec.deadline_seconds)
}
