//! The status of a WorkerDeployment and its conditions.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use windlass_core::api::at_hook::message_of;
use windlass_core::api::conditions::{
    self, READY, RECONCILING, ROLLOUT_IN_PROGRESS, STALLED, Truth, UP_TO_DATE,
};
use windlass_core::api::names::argument_of;
use windlass_core::api::{AtHook, Condition, Ending};
use windlass_engine::{Plan, PlanState, TaskState, stalled};

use super::decide::Decision;
use super::evacuate::{self, Evacuation};
use super::facts::{Facts, PoolWorkers, TemporalState, Version, Workers};
use super::hooks;
use super::sunset::drained_since;
use crate::api::{PoolRecord, Reason, VersionRecord, VersionState, WorkerDeploymentStatus};
use crate::port::{BuildId, RampTarget};

/// The most versions in the status: those that receive tasks, then the newest.
const MAX_VERSIONS: usize = 200;

/// How long Temporal may limit the rate of reads before the conditions report it: all clients of a namespace share the limit,
/// and a burst of another one lasts for seconds.
const LIMITED_FOR: TimeDelta = TimeDelta::seconds(60);

/// Updates a status from the facts.
pub fn refresh(
    status: &mut WorkerDeploymentStatus,
    facts: &Facts,
    plan: Option<&Plan>,
    decision: &Decision,
    forgotten: &[BuildId],
    now: DateTime<Utc>,
) {
    status.observed_generation = facts.generation;
    status.target_build_id = Some(facts.target.build.clone());
    status.requested_rollout_hash = Some(facts.target.hash.clone());
    status.connection = Some(facts.connection.clone());
    match &facts.temporal {
        TemporalState::Known(described) => {
            status.temporal_lost_at = None;
            status.current_build_id.clone_from(&described.routing.current);
            status.ramping_build_id = facts.ramping().cloned();
            let versioned =
                described.routing.ramp.as_ref().filter(|r| matches!(r.to, RampTarget::Version(_)));
            status.ramp_percent = versioned.map(|ramp| ramp.percent.0.round() as i32);
        }
        TemporalState::Lost { .. } => {
            status.temporal_lost_at.get_or_insert(now);
        }
    }
    if facts.spec.force_promote.is_none() || status.spent_force_promote != facts.spec.force_promote {
        status.spent_force_promote = None;
    }
    status.rejected =
        status.rejected.take().filter(|rejected| rejected.hash == facts.target.hash && !facts.is_at_target());
    refresh_versions(status, facts, plan, forgotten, now);
    status.hooks = hooks::needing_attention(plan);
    if let (Some(evacuation), Some(plan)) = (&mut status.evacuation, plan) {
        evacuate::refresh(evacuation, plan);
    }
    let values = condition_values(status, facts, plan, decision, now);
    for (type_, truth, reason, message) in values {
        conditions_set(&mut status.conditions, type_, truth, reason, &message, facts.generation, now);
    }
}

fn conditions_set(
    all: &mut Vec<Condition>,
    type_: &str,
    truth: Truth,
    reason: Reason,
    message: &str,
    generation: i64,
    now: DateTime<Utc>,
) {
    conditions::set(all, type_, truth, reason.as_ref(), message, generation, now);
}

fn refresh_versions(
    status: &mut WorkerDeploymentStatus,
    facts: &Facts,
    plan: Option<&Plan>,
    forgotten: &[BuildId],
    now: DateTime<Utc>,
) {
    let planned = evacuate::rollout(plan).is_some_and(Plan::is_active);
    let refuge = evacuate::active(plan).and_then(Evacuation::of).map(|evacuation| evacuation.to);
    let mut records: Vec<VersionRecord> = Vec::new();
    // Versions that the status already has keep their order.
    let known = status.versions.iter().map(|record| record.build_id.clone());
    let mut order: Vec<BuildId> = known.filter(|build| facts.versions.contains_key(build)).collect();
    let mut new: Vec<&Version> =
        facts.versions.values().filter(|version| !order.contains(&version.build)).collect();
    new.sort_by_key(|version| version.listed.as_ref().and_then(|listed| listed.created));
    order.extend(new.iter().map(|version| version.build.clone()));
    for build in order.iter().filter(|build| !forgotten.contains(build)) {
        let Some(version) = facts.versions.get(build) else { continue };
        if version.workers.is_none() && version.listed.is_none() && version.record.is_none() {
            continue;
        }
        // A record would state that Temporal does not know the version, and that is not known.
        let is_lost = matches!(facts.temporal, TemporalState::Lost { .. });
        if is_lost && version.is_unrecorded && version.record.is_none() {
            continue;
        }
        let wanted = *build == facts.target.build && (planned || facts.is_at_target());
        let wanted = wanted || refuge.as_ref() == Some(build);
        records.push(record(facts, version, wanted, now));
    }
    let surplus = records.len().saturating_sub(MAX_VERSIONS);
    records.drain(..surplus);
    status.versions = records;
}

fn record(facts: &Facts, version: &Version, wanted: bool, now: DateTime<Utc>) -> VersionRecord {
    let before = version.record.as_ref();
    let mut state = facts.state(version);
    // A version that was listed keeps its state until Temporal reports that this version does not exist.
    if state == VersionState::NotRegistered
        && !version.is_forgotten
        && let Some(before) = before
    {
        state = before.state;
    }
    let unchanged = before.filter(|before| before.state == state);
    let since = unchanged.and_then(|before| before.since);
    let pinned = version.running.map(|running| running.pinned);
    let takes_tasks = matches!(state, VersionState::Current | VersionState::Ramping);
    // A pin makes a drained version drain again, and so does the end of new tasks, which this may be the first to see.
    let began =
        version.listed.as_ref().and_then(|listed| listed.drainage).and_then(|drainage| drainage.changed);
    let idle_since = unchanged.and_then(|before| before.drained_since);
    let idle_since = idle_since.filter(|since| began.is_none_or(|began| began <= *since));
    let running = pinned.map(|pinned| pinned as i64);
    let running = running.or_else(|| before.filter(|_| !takes_tasks).and_then(|b| b.running_workflows));
    let running = if state == VersionState::Drained && version.was_active() && pinned.is_none() {
        Some(0)
    } else {
        running
    };
    let drained_since = match &facts.temporal {
        TemporalState::Lost { .. } => before.and_then(|before| before.drained_since),
        TemporalState::Known(_) if takes_tasks || wanted || pinned.is_some_and(|pinned| pinned > 0) => None,
        TemporalState::Known(_) if version.was_active() && state == VersionState::Drained => {
            Some(drained_since(version).unwrap_or(now))
        }
        TemporalState::Known(_) => match pinned {
            Some(_) => idle_since.or(Some(now)),
            None => idle_since,
        },
    };
    let workers = version.workers.as_ref();
    VersionRecord {
        build_id: version.build.clone(),
        revision: workers
            .and_then(|workers| workers.first().revision.clone())
            .or_else(|| before.and_then(|before| before.revision.clone())),
        deployment: workers.map(|workers| workers.first().name.clone()),
        pools: workers.map(pool_records).unwrap_or_default(),
        state,
        replicas: workers.map_or(0, Workers::replicas),
        ready: workers.map_or(0, Workers::ready),
        since: since.or(Some(now)),
        drained_since,
        running_workflows: running,
        pollers: version
            .pollers
            .map(|count| count as i32)
            .or_else(|| before.and_then(|before| before.pollers))
            // The pollers of a version without pods are not counted again.
            .filter(|_| workers.is_some_and(|workers| workers.total() > 0)),
        resources: version
            .resources
            .clone()
            .or_else(|| before.map(|before| before.resources.clone()))
            .unwrap_or_default(),
    }
}

/// The records of a version's pools; none if it has only one.
fn pool_records(workers: &Workers) -> Vec<PoolRecord> {
    let record = |pool: &PoolWorkers| PoolRecord {
        name: pool.pool.clone(),
        deployment: pool.name.clone(),
        replicas: pool.replicas,
        ready: pool.ready,
    };
    let pools = workers.pools();
    if pools.len() == 1 { Vec::new() } else { pools.iter().map(record).collect() }
}

type ConditionValue = (&'static str, Truth, Reason, String);

fn condition_values(
    status: &WorkerDeploymentStatus,
    facts: &Facts,
    plan: Option<&Plan>,
    decision: &Decision,
    now: DateTime<Utc>,
) -> Vec<ConditionValue> {
    let rollout = evacuate::rollout(plan);
    let active = rollout.filter(|plan| plan.is_active());
    let evacuation = evacuate::active(plan);
    let (truth, reason, message) = up_to_date(status, facts, active.or(evacuation), decision, now);
    let is_stuck = reason.needs_somebody() || matches!(reason, Reason::Stalled);
    let in_progress = match (active, rollout.map(|plan| plan.state)) {
        // An evacuation replaced the plan of the last rollout, which had ended.
        (None, None) if plan.is_some() => {
            let before = conditions::find(&status.conditions, ROLLOUT_IN_PROGRESS);
            let reason = before.and_then(|condition| condition.reason.parse().ok());
            (Truth::False, reason.unwrap_or(Reason::NotStarted), String::new())
        }
        (Some(_), _) if facts.spec.paused => (Truth::True, Reason::Paused, String::new()),
        (Some(_), _) if is_stuck => (Truth::True, Reason::Stalled, message.clone()),
        (Some(_), _) => (Truth::True, cause(status), message.clone()),
        (None, None) => (Truth::False, Reason::NotStarted, String::new()),
        (None, Some(PlanState::Failed)) => (Truth::False, Reason::RolloutFailed, String::new()),
        (None, Some(PlanState::Aborted)) => (Truth::False, Reason::RolloutAborted, String::new()),
        (None, Some(_))
            if status.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::RolledBack)) =>
        {
            (Truth::False, Reason::RolledBack, String::new())
        }
        (None, Some(_)) => (Truth::False, Reason::RolloutComplete, String::new()),
    };
    let updating = facts.updating().filter(|_| active.is_none());
    let stuck_evacuation = evacuation.and_then(|plan| evacuate::stuck(plan, now));
    let stuck_update = updating.as_ref().filter(|(pool, _)| pool.complaint.is_some());
    let stuck_update = stuck_update.map(|(_, sentence)| (Reason::NoProgress, sentence.clone()));
    let stuck = stuck_evacuation.clone().or(stuck_update);
    let stalled_condition = match &stuck {
        _ if is_stuck => {
            let word = if reason == Reason::Stalled { Reason::NoProgress } else { reason };
            (Truth::True, word, message.clone())
        }
        Some((reason, message)) => (Truth::True, *reason, message.clone()),
        None => (Truth::False, Reason::Progressing, String::new()),
    };
    let is_stuck = is_stuck || stuck.is_some();
    let is_lost =
        matches!(facts.temporal, TemporalState::Lost { .. }) && !is_briefly_limited(status, facts, now);
    let reconciling_condition = if facts.deleted_at.is_some() {
        (Truth::True, Reason::Terminating, message.clone())
    } else if let Some(task) =
        evacuation.and_then(Plan::current_task).filter(|_| !is_lost && stuck_evacuation.is_none())
    {
        (Truth::True, Reason::Progressing, task.message.clone())
    } else if (active.is_some() || is_lost || facts.unchecked.is_some()) && !is_stuck {
        (Truth::True, Reason::Progressing, message.clone())
    } else if let Some(sentence) =
        updating.map(|(_, sentence)| sentence).or_else(|| unapplied(facts)).filter(|_| !is_stuck)
    {
        (Truth::True, Reason::Progressing, sentence)
    } else {
        (Truth::False, Reason::Settled, uncounted(facts).unwrap_or_default())
    };
    let ready = ready(facts);
    vec![
        (READY, ready.0, ready.1, ready.2),
        (UP_TO_DATE, truth, reason, message),
        (ROLLOUT_IN_PROGRESS, in_progress.0, in_progress.1, in_progress.2),
        (STALLED, stalled_condition.0, stalled_condition.1, stalled_condition.2),
        (RECONCILING, reconciling_condition.0, reconciling_condition.1, reconciling_condition.2),
    ]
}

/// Why Windlass keeps a version that may be unused although its retirement is due, as a sentence.
fn uncounted(facts: &Facts) -> Option<String> {
    facts.versions.values().find_map(|version| {
        let error = version.uncounted.as_ref().filter(|_| version.workers.is_some())?;
        Some(format!("Windlass keeps {} because it could not count its workflows: {error}", version.build))
    })
}

/// Why a version that serves workflows lacks an object of `spec.perVersion`, as a sentence.
fn unapplied(facts: &Facts) -> Option<String> {
    facts
        .versions
        .values()
        .filter(|version| serves(facts, version))
        .find_map(|version| facts.unapplied(version))
}

/// True if workflows may run on a version.
fn serves(facts: &Facts, version: &Version) -> bool {
    let is_idle = || version.record.as_ref().is_some_and(|record| record.drained_since.is_some());
    match facts.state(version) {
        VersionState::Current | VersionState::Ramping => true,
        VersionState::Draining => !is_idle(),
        VersionState::NotRegistered | VersionState::Inactive | VersionState::Drained => false,
    }
}

fn up_to_date(
    status: &WorkerDeploymentStatus,
    facts: &Facts,
    active: Option<&Plan>,
    decision: &Decision,
    now: DateTime<Utc>,
) -> (Truth, Reason, String) {
    if let Some(sentence) = &facts.invalid {
        return (Truth::False, Reason::InvalidSpec, sentence.clone());
    }
    let is_brief = is_briefly_limited(status, facts, now);
    let lost = lost(status, facts, now);
    if let Some(lost) = lost.clone().filter(|_| !is_brief) {
        return lost;
    }
    if let Some(sentence) = facts.secrets.sentence() {
        return (Truth::False, Reason::ConnectionSecretNotFound, sentence.to_owned());
    }
    let rollout = evacuate::rollout(active);
    let is_obsolete = rollout.is_some_and(|plan| plan.target_hash != facts.target.hash);
    if let Some(plan) = rollout.filter(|_| !is_obsolete || facts.unchecked.is_none()) {
        return of_plan(plan, &argument_of("wwd", &facts.name, &facts.namespace), now);
    }
    if let Decision::Refuse { reason, message } = decision {
        return (Truth::False, *reason, message.clone());
    }
    if let Some(rejected) = &status.rejected {
        let (reason, what) = match rejected.ending() {
            Some(Ending::RolledBack) => (Reason::RolledBack, "was rolled back"),
            Some(Ending::Failed) => (Reason::PlanFailed, "failed"),
            _ => (Reason::Aborted, "was aborted"),
        };
        let why = if rejected.message.is_empty() { String::new() } else { format!(": {}", rejected.message) };
        let values = format!(
            "the rollout of {} {what}{why}; change the template, or run: windlass retry {}",
            rejected.build_id,
            argument_of("wwd", &facts.name, &facts.namespace)
        );
        return (Truth::False, reason, values);
    }
    if facts.is_at_target() || (is_brief && was_applied(status, facts)) {
        return (Truth::True, Reason::Applied, String::new());
    }
    if let Some(sentence) = &facts.unchecked {
        return (Truth::Unknown, Reason::Applying, sentence.clone());
    }
    if let Some(evacuation) = active.and_then(Evacuation::of) {
        return (Truth::Unknown, Reason::Evacuating, evacuate::waiting_rollout(facts, &evacuation));
    }
    let lost = lost.filter(|_| !is_brief);
    lost.unwrap_or((Truth::Unknown, Reason::NotStarted, String::new()))
}

/// Why the state in Temporal is unknown.
fn lost(
    status: &WorkerDeploymentStatus,
    facts: &Facts,
    now: DateTime<Utc>,
) -> Option<(Truth, Reason, String)> {
    let TemporalState::Lost { reason, message } = &facts.temporal else { return None };
    let since = status.temporal_lost_at.unwrap_or(now).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let truth = if reason.needs_somebody() { Truth::False } else { Truth::Unknown };
    Some((truth, *reason, format!("since {since}: {message}")))
}

/// True if the conditions do not report yet that the state in Temporal is unknown. Decisions never use an older state.
fn is_briefly_limited(status: &WorkerDeploymentStatus, facts: &Facts, now: DateTime<Utc>) -> bool {
    let is_limited = matches!(facts.temporal, TemporalState::Lost { reason: Reason::RateLimited, .. });
    is_limited && now - status.temporal_lost_at.unwrap_or(now) < LIMITED_FOR
}

/// True if the target was current at the last answer from Temporal.
fn was_applied(status: &WorkerDeploymentStatus, facts: &Facts) -> bool {
    let is_completed = status.last_completed_rollout_hash.as_ref() == Some(&facts.target.hash);
    let before = conditions::find(&status.conditions, UP_TO_DATE);
    is_completed && before.is_some_and(|condition| condition.reason == Reason::Applied.as_ref())
}

fn of_plan(plan: &Plan, object: &str, now: DateTime<Utc>) -> (Truth, Reason, String) {
    let Some(task) = plan.current_task() else { return (Truth::Unknown, Reason::Applying, String::new()) };
    if let Some(at) = AtHook::of(plan) {
        if at.failed {
            return (Truth::False, Reason::HookFailed, hooks::failure(&at, object));
        }
        // Hooks have their own time-out.
        return (Truth::Unknown, Reason::Applying, message_of(task));
    }
    if task.state == TaskState::Failed {
        return (Truth::False, Reason::GateFailed, task.message.clone());
    }
    // A task that just started has no message yet.
    let begins = || format!("starting task {}", task.type_);
    let message = Some(task.message.clone()).filter(|values| !values.is_empty()).unwrap_or_else(begins);
    let reason = awaited_reason(&task.progress).unwrap_or(match task.type_.as_str() {
        "await-registered" => Reason::WaitingForPollers,
        "run-gate" => Reason::GateRunning,
        "ramp" => Reason::Ramping,
        "set-current" => Reason::Promoting,
        "await-promote" => Reason::ReadyToPromote,
        _ => Reason::Applying,
    });
    // Every rollout begins with workers that are not ready.
    let reason =
        if reason == Reason::WorkersNotReady || reason == Reason::Paused { Reason::Applying } else { reason };
    if reason.needs_somebody() {
        return (Truth::False, reason, message);
    }
    if stalled(plan, now).is_some() && reason != Reason::ReadyToPromote {
        return (Truth::False, Reason::Stalled, message);
    }
    (Truth::Unknown, reason, message)
}

/// The reason that a waiting task wrote into its progress.
#[must_use]
pub fn awaited_reason(progress: &Value) -> Option<Reason> {
    serde_json::from_value(progress.get("reason")?.clone()).ok()
}

fn cause(status: &WorkerDeploymentStatus) -> Reason {
    let known = status.cause.as_deref().and_then(|cause| cause.parse().ok());
    let is_cause =
        |cause: &Reason| matches!(cause, Reason::RetryRequested | Reason::Superseded | Reason::ChildDrift);
    known.filter(is_cause).unwrap_or(Reason::TemplateChanged)
}

fn ready(facts: &Facts) -> (Truth, Reason, String) {
    // The workers of other versions in the same deployment are somebody else's.
    let was_made =
        |version: &Version| version.record.as_ref().is_some_and(|record| record.revision.is_some());
    let has_workers =
        |version: &Version| version.workers.is_some() || version.has_revision || was_made(version);
    let serving = facts.versions.values();
    let mut serving = serving.filter(|version| has_workers(version) && serves(facts, version)).peekable();
    if serving.peek().is_none() {
        return (Truth::False, Reason::NotStarted, "no version of this object receives tasks".to_owned());
    }
    let shortage = |version: &Version| {
        if version.workers.is_none() {
            return Some(format!("0 of 0 workers of {} are ready", version.build));
        }
        let is_short = |pool: &&PoolWorkers| pool.replicas == 0 || pool.ready < pool.replicas;
        let pool = facts.pools_in_need(version).find(is_short)?;
        let of = if pool.pool.is_empty() { String::new() } else { format!(" in pool {}", pool.pool) };
        Some(format!("{} of {} workers of {}{of} are ready", pool.ready, pool.replicas, version.build))
    };
    match serving.find_map(shortage) {
        None => (Truth::True, Reason::WorkersReady, String::new()),
        Some(sentence) => (Truth::False, Reason::WorkersNotReady, sentence),
    }
}
