//! `run-job`: a Job is Complete.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::warn;

use super::DeletedJobs;
use super::HookScope;
use super::job_problem::{self, JobProblem};
use super::manifest::{Attempt, JobOwner, job_name, manifest};
use super::turn::{Turn, hook_task};
use crate::api::TaskType;
use crate::api::at_hook::{attempt_of, hook_of, point_of};
use crate::api::names::ANNOTATION_TASK;
use crate::api::{Hook, HookAction, HookPoint};
use crate::engine::{Outcome, Plan, TaskContext, TaskError, TaskRecord, TaskState};
use crate::hooks::{HookRules, Values, check};
use windlass_kube_port::observed::Meta;
use windlass_kube_port::view::UNKNOWN_OUTCOME_TTL;
use windlass_kube_port::{Cluster, ClusterError, Kind, Selector, Target};

/// How often a Job is polled. Jobs are not watched: Windlass does not request the permission to watch them.
pub const LOOK: Duration = Duration::from_secs(2);
/// The reason of the event that the Job controller records about a Job that is Complete.
const COMPLETED: &str = "Completed";
/// The requeue delay after a conflicting create.
const AT_ONCE: Duration = Duration::from_millis(200);

hook_task! {
    /// Runs a Job and waits until it is Complete.
    RunJob = "run-job", |turn| run(&turn).await, |cx, outcome| not_run(cx, outcome).await
}

/// What is persisted about a Job: that it was created, and what keeps it from completing.
#[derive(Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct CreatedJob {
    uid: String,
    #[serde(skip_serializing_if = "JobProblem::is_none")]
    trouble: JobProblem,
    /// Until when a request of an earlier leader may make the Job again, if it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    contested_until: Option<DateTime<Utc>>,
}

async fn run(turn: &Turn<'_>) -> Result<Outcome, TaskError> {
    let Some(HookAction::Job(job)) = turn.hook.action() else { return Ok(Outcome::Done) };
    let (owner, cluster) = (&turn.scope.owner, &turn.scope.cluster);
    let attempt = Attempt { hook: &turn.hook.name, task_id: &turn.cx.record.id, number: turn.attempt() };
    let name = job_name(&owner.name, attempt.hook, attempt.task_id, attempt.number);
    let made = CreatedJob::deserialize(&turn.cx.record.progress).unwrap_or_default();
    let found = cluster.get(Kind::Job, &owner.namespace, &name).await.map_err(allowed)?;
    let Some(found) = found else {
        let is_gone = !made.uid.is_empty() && !was_deleted_here(turn, &made.uid);
        if is_gone && has_completed(cluster.as_ref(), owner, &name, &made.uid).await? {
            return Ok(Outcome::Done);
        }
        if turn.is_overdue() {
            return turn.is_late(&turn.last_message_or(format!("Job {name} was not created")));
        }
        if is_gone {
            // It is not known how far the Job got: only a person may decide to run it again.
            return Err(TaskError::terminal(format!(
                "Job {name} was deleted before Windlass observed its end; to run it again: windlass retry"
            )));
        }
        if let Some(why) = &turn.scope.hold {
            return Ok(turn.waits(why.clone(), LOOK));
        }
        let (plan, record) = (turn.cx.plan, turn.cx.record);
        if point_of(record) == Some(HookPoint::BeforeCreate)
            && let Some(sentence) = waits_for_job(cluster.as_ref(), owner, plan, Some(record)).await?
        {
            return Ok(turn.waits(sentence, LOOK));
        }
        return create(turn, attempt, &job.template).await;
    };
    let meta = Meta::read(&found);
    if !is_ours(&meta, owner, attempt.task_id) {
        return Err(TaskError::terminal(format!(
            "Job {name} exists and does not belong to this task; Windlass does not touch it: delete it"
        )));
    }
    let end = end(&found);
    if let Some(End::Complete) = end {
        return Ok(Outcome::Done);
    }
    if meta.terminating && !turn.is_overdue() && was_deleted_here(turn, &meta.uid) {
        // The deletion kills its pods, so a failure now is not a failure of the hook.
        return Ok(turn.waits(format!("Job {name} is being deleted, and Windlass recreates it"), LOOK));
    }
    let trouble = job_problem::look(cluster.as_ref(), &found, &made.trouble).await;
    if let Some(End::Failed(words)) = end {
        return Err(TaskError::terminal(trouble.after(&format!("Job {name} failed: {words}"))));
    }
    let so_far = trouble.after(&format!("Job {name} is not complete: {}", so_far(&found)));
    let contested_until = if made.uid.is_empty() { contested_until(turn) } else { made.contested_until };
    if turn.is_overdue() {
        if contested_until.is_some_and(|until| until > turn.cx.now) {
            let message = so_far
                + "; it has timed out, and Windlass deletes it once no request of an earlier leader can recreate it";
            return Ok(turn.waits(message, LOOK));
        }
        // A Job that timed out must not run in parallel to what follows.
        delete(cluster.as_ref(), &meta).await?;
        return turn.is_late(&so_far);
    }
    let known = CreatedJob { uid: meta.uid, trouble, contested_until };
    if known == made {
        return Ok(turn.waits(so_far, LOOK));
    }
    Ok(turn.keeps(so_far, LOOK, json!(known)))
}

/// True if a Job that is gone was Complete, by the event of its controller. Somebody deleted it after its end, or the
/// operator was away for longer than it is kept.
async fn has_completed(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    job: &str,
    uid: &str,
) -> Result<bool, ClusterError> {
    let by = format!("regarding.kind=Job,regarding.name={job},reason={COMPLETED}");
    match cluster.selected(Kind::Event, &owner.namespace, Selector::Fields(by)).await {
        Ok(events) => Ok(events.iter().any(|event| event["regarding"]["uid"] == uid)),
        // Without the permission nothing is known.
        Err(ClusterError::Forbidden { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if this process deleted the Job for an end of the plan that was not stored, as the plan goes on. Only this
/// process
/// knows that it was no person, so after a crash in between the hook fails and has to be retried.
fn was_deleted_here(turn: &Turn<'_>, job_uid: &str) -> bool {
    let deleted = turn.cx.env.find::<Arc<DeletedJobs>>();
    deleted.is_some_and(|deleted| deleted.has(&turn.scope.owner.uid, job_uid))
}

/// Until when a request of an earlier leader to make this Job may still be carried out: it may have been sent before
/// the
/// task's start was persisted. As long as there is a Job of this name, the API server refuses it. None if this process
/// began the plan, or acts for so long that there is no such request.
fn contested_until(turn: &Turn<'_>) -> Option<DateTime<Utc>> {
    let here = turn.cx.env.find::<Arc<DeletedJobs>>()?.acts_for();
    let left = UNKNOWN_OUTCOME_TTL.checked_sub(here)?;
    let plan = (turn.cx.now - turn.cx.plan.started_at).to_std().ok()?;
    (plan > here).then(|| turn.cx.now + left)
}

async fn create(turn: &Turn<'_>, attempt: Attempt<'_>, template: &Value) -> Result<Outcome, TaskError> {
    let made = manifest(&turn.scope.owner, attempt, template, &turn.values());
    let waiting = |name: &str| format!("Job {name} was created");
    match turn.scope.cluster.create(Kind::Job, made).await {
        Ok(stored) => {
            let meta = Meta::read(&stored);
            let contested_until = contested_until(turn);
            let made = CreatedJob { uid: meta.uid, contested_until, ..CreatedJob::default() };
            Ok(turn.keeps(waiting(&meta.name), LOOK, json!(made)))
        }
        // Created by us, with the response lost, or by somebody else: the next reconcile finds out.
        Err(error @ (ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. })) => {
            Ok(turn.waits(error.to_string(), AT_ONCE))
        }
        Err(ClusterError::Refused { message, .. }) => {
            Err(TaskError::terminal(format!("the API server rejects its Job: {message}")))
        }
        Err(error) => Err(allowed(error).into()),
    }
}

/// Adds to a Forbidden error which permissions are needed.
fn allowed(error: ClusterError) -> ClusterError {
    match error {
        ClusterError::Forbidden { object, message } => ClusterError::Forbidden {
            object,
            message: format!(
                "{message}; hooks with Jobs need the permissions in deploy/rbac/hook-jobs-*.yaml"
            ),
        },
        error => error,
    }
}

fn is_ours(meta: &Meta, owner: &JobOwner, task_id: &str) -> bool {
    meta.is_controlled_by(&owner.uid) && meta.annotation(ANNOTATION_TASK) == Some(task_id)
}

enum End {
    Complete,
    Failed(String),
}

/// How a Job ended, if it has.
fn end(job: &Value) -> Option<End> {
    let conditions = job["status"]["conditions"].as_array()?;
    let is_true = |type_: &str| conditions.iter().find(|c| c["type"] == type_ && c["status"] == "True");
    if is_true("Complete").is_some() {
        return Some(End::Complete);
    }
    let failed = is_true("Failed")?;
    let words = [&failed["reason"], &failed["message"]].into_iter().filter_map(Value::as_str);
    Some(End::Failed(words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")))
}

fn so_far(job: &Value) -> String {
    let status = &job["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let (active, ready, failed) = (count("active"), count("ready"), count("failed"));
    if job["spec"]["suspend"] == true {
        return "it is suspended".to_owned();
    }
    format!("{active} of its pods active, {ready} of them ready, {failed} failed")
}

async fn delete(cluster: &dyn Cluster, meta: &Meta) -> Result<(), ClusterError> {
    if meta.terminating {
        return Ok(());
    }
    match cluster.delete(Target::of(Kind::Job, meta)).await {
        Err(ClusterError::NotFound { .. }) => Ok(()),
        answer => answer,
    }
}

/// Deletes the Jobs of a plan that is about to end early, because it is superseded or a person aborts it. The Jobs of
/// its completed tasks are kept for as long as their templates say.
///
/// Call this before the plan's end is persisted: if the process dies in between, it is called again. If the end is not
/// persisted and the plan continues, the Jobs are recreated, because `deleted` has them. Jobs that Windlass has no
/// permission for, or whose delete a policy refuses, are left to garbage collection, which deletes them with their
/// owner: the plan ends all
/// the same.
pub async fn delete_jobs(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    plan: &Plan,
    deleted: &DeletedJobs,
) -> Result<(), ClusterError> {
    unless_forbidden(plan, delete_jobs_of(cluster, owner, plan, deleted).await)
}

/// Takes a deletion that is not allowed for one that was done.
fn unless_forbidden(plan: &Plan, deleted: Result<(), ClusterError>) -> Result<(), ClusterError> {
    match deleted {
        Err(ClusterError::Forbidden { object, message }) => {
            warn!(plan = %plan.id, job = object, message, "could not delete the Job of a hook");
            Ok(())
        }
        answer => answer,
    }
}

/// Takes a delete that the API server refuses for one that was done. The Jobs after it are deleted all the same.
fn unless_refused(job: &Meta, deleted: Result<(), ClusterError>) -> Result<(), ClusterError> {
    match deleted {
        Err(error @ (ClusterError::Forbidden { .. } | ClusterError::DeleteRefused { .. })) => {
            warn!(job = job.name, %error, "could not delete the Job of a hook");
            Ok(())
        }
        answer => answer,
    }
}

async fn delete_jobs_of(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    plan: &Plan,
    deleted: &DeletedJobs,
) -> Result<(), ClusterError> {
    // The Job of a task that is Pending in the status may exist: the write that said so was lost or in conflict.
    let may_run = |state: TaskState| !matches!(state, TaskState::Complete | TaskState::Skipped);
    for record in plan.tasks.iter().filter(|task| TaskType::RunJob.is(task) && may_run(task.state)) {
        delete_jobs_of_task(cluster, owner, record, deleted).await?;
    }
    Ok(())
}

async fn delete_jobs_of_task(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    record: &TaskRecord,
    deleted: &DeletedJobs,
) -> Result<(), ClusterError> {
    let Some(hook) = hook_of(record) else { return Ok(()) };
    for attempt in 1..=attempt_of(record) {
        let name = job_name(&owner.name, hook, &record.id, attempt);
        let Some(found) = cluster.get(Kind::Job, &owner.namespace, &name).await? else { continue };
        let meta = Meta::read(&found);
        if is_ours(&meta, owner, &record.id) {
            let answer = delete(cluster, &meta).await;
            // A delete without an answer may have been carried out. A Job that is already terminating was deleted by
            // somebody else, or is remembered.
            let is_refused =
                matches!(answer, Err(ClusterError::Forbidden { .. } | ClusterError::DeleteRefused { .. }));
            if !meta.terminating && !is_refused {
                deleted.put(&owner.uid, &meta.uid);
            }
            unless_refused(&meta, answer)?;
        }
    }
    Ok(())
}

/// Which Job at `BeforeCreate` of a plan has not ended, in a sentence, except that of the attempt that a task carries out. It is
/// deleted: it may write to the node's volumes, and must not run in parallel to what follows.
pub async fn waits_for_job(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    plan: &Plan,
    current: Option<&TaskRecord>,
) -> Result<Option<String>, ClusterError> {
    let is_of_point =
        |task: &&TaskRecord| TaskType::RunJob.is(task) && point_of(task) == Some(HookPoint::BeforeCreate);
    for record in plan.tasks.iter().filter(is_of_point) {
        let Some(hook) = hook_of(record) else { continue };
        let is_current = current.is_some_and(|current| current.id == record.id);
        for attempt in 1..=attempt_of(record) - u32::from(is_current) {
            let name = job_name(&owner.name, hook, &record.id, attempt);
            let found = match cluster.get(Kind::Job, &owner.namespace, &name).await {
                Err(ClusterError::Forbidden { .. }) => return Ok(None),
                found => found?,
            };
            let Some(found) = found.filter(|found| end(found).is_none()) else { continue };
            let meta = Meta::read(&found);
            if is_ours(&meta, owner, &record.id) {
                unless_refused(&meta, delete(cluster, &meta).await)?;
                return Ok(Some(format!("waiting for the deletion of an earlier Job and its pods: {name}")));
            }
        }
    }
    Ok(None)
}

/// The outcome of a Job's task that does not run. If it is Skipped, the Job must not run in parallel to what follows.
async fn not_run(cx: &TaskContext<'_>, outcome: Outcome) -> Result<Outcome, TaskError> {
    if matches!(outcome, Outcome::Skipped { .. })
        && let Some(scope) = cx.env.find::<HookScope>()
    {
        let nowhere = Arc::default();
        let deleted = cx.env.find::<Arc<DeletedJobs>>().unwrap_or(&nowhere);
        let answer = delete_jobs_of_task(scope.cluster.as_ref(), &scope.owner, cx.record, deleted).await;
        unless_forbidden(cx.plan, answer)?;
    }
    Ok(outcome)
}

/// Why the API server did not accept a hook's Job.
#[derive(Debug)]
pub enum DryRun {
    /// The API server will keep refusing it: the spec is invalid. The sentence has the hook's name.
    Refused(String),
    /// The API server could not be asked, or does not allow it for now.
    NotNow(ClusterError),
}

/// Why hooks cannot be run, in a sentence with the hook's name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unfit {
    /// The spec is invalid.
    Refused(String),
    /// It is not known whether the API server would accept a Job.
    Unknown {
        /// Why, in a sentence with the hook's name.
        sentence: String,
        /// True if this may resolve itself.
        is_transient: bool,
    },
}

/// Checks that all of these hooks can be run: by the rules and, for their Jobs, by a dry run.
pub async fn check_all(
    cluster: &dyn Cluster,
    owner: &JobOwner,
    hooks: &[Hook],
    rules: &HookRules,
) -> Result<(), Unfit> {
    hooks.iter().try_for_each(|hook| check(hook, rules)).map_err(Unfit::Refused)?;
    for hook in hooks.iter().filter(|hook| matches!(hook.action(), Some(HookAction::Job(_)))) {
        dry_run(cluster, owner, hook).await.map_err(|why| match why {
            DryRun::Refused(sentence) => Unfit::Refused(sentence),
            DryRun::NotNow(error) => Unfit::Unknown {
                sentence: format!(
                    "hook {}: could not check whether the API server accepts its Job: {error}",
                    hook.name
                ),
                // A temporary failure is not the spec's fault; a missing permission is for a person to see.
                is_transient: !matches!(error, ClusterError::Forbidden { .. }),
            },
        })?;
    }
    Ok(())
}

/// Asks the API server, in a dry run with strict field validation, whether it would accept a hook's Job. Nothing is
/// stored. A hook without a Job passes.
pub async fn dry_run(cluster: &dyn Cluster, owner: &JobOwner, hook: &Hook) -> Result<(), DryRun> {
    let Some(HookAction::Job(job)) = hook.action() else { return Ok(()) };
    // Every name and address is a string, so it does not matter which one.
    let values = Values::each("unknown");
    let attempt = Attempt { hook: &hook.name, task_id: "0000000000-0", number: 1 };
    let wanted = manifest(owner, attempt, &job.template, &values);
    match cluster.try_create(Kind::Job, wanted).await {
        Ok(_) => Ok(()),
        Err(ClusterError::Refused { message, .. }) => {
            Err(DryRun::Refused(format!("hook {}: the API server rejects its Job: {message}", hook.name)))
        }
        Err(error) => Err(DryRun::NotNow(allowed(error))),
    }
}
