//! The evacuation of a version: pinned workflows move to another version, so that it drains.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_core::api::names::argument_of;
use windlass_engine::{Plan, PlanSeed, PlanState, Recipe, Step, TaskRecord, TaskState, stalled};

use super::facts::{Facts, Version, Workers};
use super::routing::{Next, PAUSED, lost};
use super::sunset::is_drained;
use crate::api::{EvacuationPhase, EvacuationRequest, EvacuationStatus, Reason, VersionState};
use crate::port::{BuildId, DescribedVersion, PinnedWorkflows, TaskQueueKind};

/// The name of the recipe.
pub const EVACUATE: &str = "Evacuate";
/// The task that counts the workflows.
pub const COUNT: &str = "count-workflows";
/// The task that moves them.
pub const MOVE: &str = "move-workflows";
/// The task that waits until none is left.
pub const AWAIT: &str = "await-drained";

/// Progress of the count: the number of workflows.
pub const WORKFLOWS: &str = "workflows";
/// Progress of the move: the ID of the batch, once Temporal has described it.
pub const BATCH: &str = "batch";
/// Progress of the move: the number of workflows that the batch has moved.
pub const MOVED: &str = "moved";
/// Progress of the move: the number of workflows that the batch could not move.
pub const FAILED: &str = "failed";

/// The most versions that a message lists.
const LISTED: usize = 10;

/// The kinds of plans.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanKind {
    /// It rolls out the target.
    Rollout,
    /// It moves workflows from one version to another. The routing and the target do not change.
    Evacuation,
}

impl PlanKind {
    /// The kind of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self::of_recipe(&plan.recipe)
    }

    /// The kind of a plan with this recipe.
    #[must_use]
    pub fn of_recipe(recipe: &str) -> Self {
        if recipe == EVACUATE { Self::Evacuation } else { Self::Rollout }
    }
}

/// A plan, if it is a rollout.
#[must_use]
pub fn rollout(plan: Option<&Plan>) -> Option<&Plan> {
    plan.filter(|plan| PlanKind::of(plan) == PlanKind::Rollout)
}

/// A plan, if it is an active evacuation.
#[must_use]
pub fn active(plan: Option<&Plan>) -> Option<&Plan> {
    plan.filter(|plan| plan.is_active() && PlanKind::of(plan) == PlanKind::Evacuation)
}

/// A request that the status does not remember.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingEvacuation {
    /// Its digest, for the status.
    pub digest: String,
    /// The request, or why it cannot be read, as a sentence.
    pub request: Result<EvacuationRequest, String>,
}

/// An evacuation: the params of each of its tasks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Evacuation {
    /// The version that the workflows leave.
    pub from: BuildId,
    /// The version that they move to.
    pub to: BuildId,
    /// Selects some of the workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

impl Evacuation {
    /// The evacuation that a plan carries out.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        let task = plan.tasks.iter().find(|task| task.type_ == MOVE)?;
        serde_json::from_value(task.params.clone()).ok()
    }

    /// The requested evacuation. The error is a sentence.
    pub fn checked(facts: &Facts, request: &EvacuationRequest) -> Result<Self, String> {
        let EvacuationRequest { from, to, query, .. } = request;
        if from == to {
            return Err(format!("--from and --to are both {from}: name two versions"));
        }
        for build in [from, to] {
            let is_listed = |version: &Version| version.listed.is_some();
            if !facts.versions.get(build).is_some_and(is_listed) {
                let listed = facts.versions.values().filter(|version| is_listed(version));
                let names: Vec<&str> = listed.map(|version| version.build.as_str()).take(LISTED).collect();
                return Err(format!(
                    "Temporal lists no version {build} of {}; it lists: {}",
                    facts.deployment,
                    names.join(", ")
                ));
            }
        }
        if let Some(sentence) = routed(facts, from) {
            return Err(sentence);
        }
        let is_rejected = facts.status.rejected.as_ref().is_some_and(|of| of.hash == facts.target.hash);
        if *from == facts.target.build && !is_rejected {
            return Err(format!(
                "{from} is the version of the spec and is about to be rolled out: change spec.template first"
            ));
        }
        let workers = facts.versions.get(to).and_then(|version| version.workers.as_ref());
        if workers.is_none_or(Workers::is_terminating) {
            return Err(format!(
                "{to} has no Deployment of this WorkerDeployment, so Windlass could not keep its workers: name another version \
                 with --to"
            ));
        }
        Ok(Self { from: from.clone(), to: to.clone(), query: query.clone() })
    }

    /// The workflows that it moves.
    #[must_use]
    pub fn workflows(&self, facts: &Facts) -> PinnedWorkflows {
        PinnedWorkflows {
            deployment: facts.deployment.clone(),
            build: self.from.clone(),
            query: self.query.clone(),
        }
    }

    /// A new plan.
    #[must_use]
    pub fn plan(&self, facts: &Facts, before: Option<&Plan>, now: DateTime<Utc>) -> Plan {
        let params = json!(self).as_object().cloned().unwrap_or_default();
        let tasks =
            [COUNT, MOVE, AWAIT].map(|type_| Step { type_: type_.to_owned(), params: params.clone() });
        Recipe { name: EVACUATE.to_owned(), tasks: tasks.to_vec() }.plan(PlanSeed {
            uid: &facts.uid,
            target_hash: self.to.as_str(),
            now,
            attempt: 0,
            disambiguator: before.map_or("", |plan| plan.id.as_str()),
        })
    }
}

/// Why workflows do not leave a version for good, as a sentence: new ones start on it.
fn routed(facts: &Facts, build: &BuildId) -> Option<String> {
    let which = match facts.state(facts.versions.get(build)?) {
        VersionState::Current => "the current version",
        VersionState::Ramping => "the ramping version",
        _ => return None,
    };
    Some(format!(
        "{build} is {which}, so new workflows start on it: roll out another version first, for example with windlass rollback {}",
        argument_of("wwd", &facts.name, &facts.namespace)
    ))
}

/// The ID of the batch of a task's current attempt.
#[must_use]
pub fn job_id(record: &TaskRecord) -> String {
    format!("windlass-evacuate-{}-{}", record.id, record.attempt.max(1))
}

/// The task of an active evacuation whose batch may run in Temporal.
#[must_use]
pub fn running_batch(plan: &Plan) -> Option<&TaskRecord> {
    let task = active(Some(plan))?.current_task()?;
    (task.type_ == MOVE && task.state == TaskState::Running).then_some(task)
}

/// True if a rollout has to wait for this evacuation: Temporal has described its batch, which has not ended.
#[must_use]
pub fn holds_rollouts(plan: &Plan) -> bool {
    running_batch(plan).is_some_and(|task| task.progress[BATCH].is_string())
}

/// The version that an active evacuation moves workflows to, until Temporal has described its batch: its pollers decide
/// whether the batch is sent.
#[must_use]
pub fn refuge_before_batch(plan: &Plan) -> Option<BuildId> {
    let plan = active(Some(plan)).filter(|plan| !holds_rollouts(plan) && !is_replaceable(plan))?;
    Evacuation::of(plan).map(|evacuation| evacuation.to)
}

/// True if another evacuation may replace this one: its batch has ended.
#[must_use]
pub fn is_replaceable(plan: &Plan) -> bool {
    plan.current_task().is_some_and(|task| task.type_ == AWAIT || task.state == TaskState::Failed)
}

/// The next step before the batch is sent; [`Next::Done`]: send it. An error fails the task; it is a sentence.
pub fn may_send(facts: &Facts, evacuation: &Evacuation) -> Result<Next, String> {
    if facts.described().is_none() {
        return Ok(lost(facts));
    }
    if let Some(sentence) = routed(facts, &evacuation.from) {
        return Err(sentence);
    }
    if facts.spec.paused {
        return Ok(Next::wait(Reason::Paused, PAUSED));
    }
    let to = &evacuation.to;
    let version = facts.versions.get(to);
    let is_served = |version: &&Version| {
        version.workers.is_some() && facts.pools_in_need(version).all(|pool| pool.available > 0)
    };
    let Some(version) = version.filter(is_served) else {
        return Ok(Next::wait(
            Reason::WorkersNotReady,
            format!("no worker of {to} is available: Windlass moves no workflows to it"),
        ));
    };
    if matches!(version.pollers, None | Some(0)) && !facts.is_scaled_to_zero(version) {
        return Ok(Next::wait(
            Reason::WaitingForPollers,
            format!("no worker of {to} has polled Temporal recently: Windlass moves no workflows to it"),
        ));
    }
    Ok(Next::Done)
}

/// Why a version cannot run the workflows of another, as a sentence: it lacks a task queue. Temporal checks the
/// workflows that a query selects.
#[must_use]
pub fn missing_task_queue(
    evacuation: &Evacuation,
    from: &DescribedVersion,
    to: &DescribedVersion,
) -> Option<String> {
    let is_missing = |queue: &&crate::port::TaskQueue| {
        queue.kind == TaskQueueKind::Workflow && !to.task_queues.contains(queue)
    };
    let missing = from.task_queues.iter().find(is_missing).filter(|_| evacuation.query.is_none())?;
    Some(format!(
        "the workers of {} do not poll the task queue {} of {}: poll it, or move only the workflows of other task queues with \
         --query \"TaskQueue != '{}'\"",
        evacuation.to, missing.name, evacuation.from, missing.name
    ))
}

/// The next step of the wait. `left`: the number of workflows, when last counted. An error fails the task; it is a
/// sentence.
pub fn await_drained(
    facts: &Facts,
    evacuation: &Evacuation,
    left: Option<u64>,
    now: DateTime<Utc>,
) -> Result<Next, String> {
    if facts.described().is_none() {
        return Ok(lost(facts));
    }
    let from = &evacuation.from;
    if let Some(sentence) = routed(facts, from) {
        return Err(sentence);
    }
    let version = facts.versions.get(from).filter(|version| !version.is_forgotten);
    let is_over = match (&evacuation.query, version) {
        (None, None) => true,
        // Temporal itself checks the drainage of a version that received tasks.
        (None, Some(version)) if version.was_active() => {
            facts.state(version) == VersionState::Drained || (left == Some(0) && is_drained(version, now))
        }
        _ => left == Some(0),
    };
    if is_over {
        return Ok(Next::Done);
    }
    let message = match left {
        None => format!("counting the workflows that are left on {from}"),
        Some(0) => format!(
            "no pinned workflow runs on {from}: waiting for Temporal to report the version as drained, which takes some minutes"
        ),
        Some(left) => format!(
            "pinned workflows that still run on {from}: {left}. If they stay, for example new child workflows, run windlass \
             evacuate again"
        ),
    };
    Ok(Next::wait(Reason::Evacuating, message))
}

/// The reason why an evacuation makes no progress, and its message; `None` if it does.
#[must_use]
pub fn stuck(plan: &Plan, now: DateTime<Utc>) -> Option<(Reason, String)> {
    let task = active(Some(plan))?.current_task()?;
    if task.state == TaskState::Failed {
        return Some((Reason::EvacuationFailed, task.message.clone()));
    }
    stalled(plan, now).map(|task| (Reason::NoProgress, task.message.clone()))
}

/// Why a rollout that is due does not start yet, as a sentence.
#[must_use]
pub fn waiting_rollout(facts: &Facts, evacuation: &Evacuation) -> String {
    format!(
        "the rollout of {} starts when the workflows have moved from {} to {}; to stop moving them, run: windlass abort {}",
        facts.target.build,
        evacuation.from,
        evacuation.to,
        argument_of("wwd", &facts.name, &facts.namespace)
    )
}

/// Updates the status of an evacuation from its plan.
pub fn refresh(status: &mut EvacuationStatus, plan: &Plan) {
    if PlanKind::of(plan) != PlanKind::Evacuation || status.plan_id.as_deref() != Some(plan.id.as_str()) {
        return;
    }
    let progress = |type_: &str, key: &str| -> Option<&Value> {
        plan.tasks.iter().find(|task| task.type_ == type_).map(|task| &task.progress[key])
    };
    let count = |type_: &str, key: &str| progress(type_, key).and_then(Value::as_i64);
    status.workflows = count(COUNT, WORKFLOWS);
    status.batch_id = progress(MOVE, BATCH).and_then(Value::as_str).map(str::to_owned);
    (status.moved, status.failed) = (count(MOVE, MOVED), count(MOVE, FAILED));
    let task = plan.current_task();
    status.phase = match (plan.state, task) {
        (PlanState::Active, Some(task)) if task.state == TaskState::Failed => EvacuationPhase::Failed,
        (PlanState::Active, Some(task)) if task.type_ == COUNT => EvacuationPhase::Counting,
        (PlanState::Active, Some(task)) if task.type_ == MOVE => EvacuationPhase::Moving,
        (PlanState::Active, _) => EvacuationPhase::Draining,
        (PlanState::Complete, _) => EvacuationPhase::Complete,
        (PlanState::Failed, _) => EvacuationPhase::Failed,
        (PlanState::Aborted, _) => EvacuationPhase::Aborted,
        (PlanState::Superseded, _) => EvacuationPhase::Superseded,
    };
    match (plan.state, task) {
        (PlanState::Active, Some(task)) => status.message.clone_from(&task.message),
        (PlanState::Failed, _) => status.message.clone_from(&plan.failure),
        (PlanState::Complete, _) => status.message.clear(),
        // The message has the reason already.
        (PlanState::Active | PlanState::Aborted | PlanState::Superseded, _) => {}
    }
}
