//! What is done for a WorkerDeployment that is deleted.

use std::time::Duration;

use serde_json::json;
use windlass_core::api::conditions::{self, RECONCILING, Truth, UP_TO_DATE};

use crate::api::names::{ANNOTATION_DELETE, FINALIZER};
use crate::api::{DeletionPolicy, Reason};
use crate::cluster::{Cluster, ClusterError, Kind};
use crate::context::Context;
use crate::observe::{self, Read};
use crate::planner::Temporal;
use crate::planner::deletion::{Step, step};
use crate::planner::facts::reason_of;
use crate::port::{BuildId, TemporalError};
use crate::reconcile::look::{Look, finalizers, save, unreadable};

/// How soon it is looked at again.
const SOON: Duration = Duration::from_secs(1);
/// How soon what takes minutes is looked at again.
const LATER: Duration = Duration::from_secs(5);
/// How often Temporal is asked in one look where nothing is waited for: an answer may be lost, a token stale.
const TRIES: u32 = 3;

/// Does the next step, and answers when to look again.
pub(crate) async fn go(mut look: Look<'_>) -> Result<Duration, ClusterError> {
    look.end_for_deletion().await?;
    let mut next = step(&look.facts, look.now);
    if let Step::Take { count, .. } = &next
        && let Some(temporal) = look.temporal.clone()
        && !count.is_empty()
    {
        for build in count.clone() {
            observe::count(&mut look.facts, &build, &*temporal).await;
        }
        next = step(&look.facts, look.now);
    }
    let mut answer = ask(&look, &next).await;
    if look.facts.delete_now {
        for left in (0..TRIES).rev() {
            let Err(error) = &answer else { break };
            if left == 0 {
                // It is left to Temporal, and the rest is not.
                let (reason, message) = (reason_of(error), error.to_string());
                look.facts.temporal = Temporal::Lost { reason, message };
            } else {
                look.ask_temporal_anew().await;
            }
            next = step(&look.facts, look.now);
            answer = ask(&look, &next).await;
        }
    }
    match (next, answer) {
        (Step::Done, _) | (Step::Release, Ok(())) => done(&look).await,
        (Step::Release, Err(_)) => Ok(SOON),
        (Step::Wait { reason, message }, _) => say(&look, reason, &message, LATER).await,
        (Step::Write(_), Ok(())) => {
            let message = "tasks are given back to workers without a version";
            say(&look, Reason::Terminating, message, SOON).await
        }
        (Step::Write(_), Err(error)) => say(&look, reason_of(&error), &error.to_string(), SOON).await,
        (Step::Take { workers, records, message, .. }, _) => {
            let refused = take(&look, &workers, &records).await;
            let soon = if workers.is_empty() { LATER } else { SOON };
            say(&look, Reason::Terminating, refused.as_ref().unwrap_or(&message), soon).await
        }
    }
}

/// Does what can be done for one whose spec cannot be read: it does not say where its Temporal is, so that its workers stay until
/// a person says that nothing is to be waited for. Without workers it goes.
pub(crate) async fn go_unread(
    cx: &Context,
    cluster: &Cluster,
    read: &Read,
    sentence: &str,
) -> Result<Duration, ClusterError> {
    let name = read.meta("name");
    let workers = cluster.list(Kind::Deployment, name).await?;
    if workers.is_empty() {
        for revision in cluster.list(Kind::Revision, name).await? {
            cluster.delete(Kind::Revision, &revision).await?;
        }
        return let_go(cx, cluster, read).await;
    }
    if read.annotation(ANNOTATION_DELETE) == Some("now") {
        for deployment in &workers {
            cluster.delete(Kind::Deployment, deployment).await?;
        }
        return Ok(SOON);
    }
    let sentence = format!(
        "no workers are taken away before it is known what runs on them ({sentence}); put the spec right, or windlass delete --now"
    );
    unreadable(cx, cluster, read, &sentence).await?;
    Ok(LATER)
}

/// Asks Temporal for what it is to do in this step; of most steps that is nothing.
async fn ask(look: &Look<'_>, step: &Step) -> Result<(), TemporalError> {
    match (step, &look.temporal, look.scope().guard()) {
        (Step::Write(write), _, _) => look.scope().write(write).await,
        (Step::Release, Some(temporal), Some(guard)) => {
            temporal.set_manager(&look.facts.deployment, false, &guard).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Takes what is to go, each for itself. Answers with what the API server refused first.
async fn take(look: &Look<'_>, workers: &[BuildId], records: &[BuildId]) -> Option<String> {
    let mut refused = None;
    for build in workers {
        match look.children.delete(build).await {
            Ok(()) if look.facts.delete_now => look.delete_record(build, true).await,
            Ok(()) | Err(ClusterError::Conflict(_) | ClusterError::Gone(_)) => {}
            Err(error) => {
                tracing::warn!(of = %look.facts.deployment, %build, %error, "workers could not be deleted yet");
                refused
                    .get_or_insert_with(|| format!("the workers of {build} could not be deleted: {error}"));
            }
        }
    }
    for build in records {
        look.delete_record(build, false).await;
    }
    refused
}

async fn say(
    look: &Look<'_>,
    reason: Reason,
    message: &str,
    after: Duration,
) -> Result<Duration, ClusterError> {
    let facts = &look.facts;
    let mut status = facts.status.clone();
    let plan = status.plan.as_ref().and_then(|raw| raw.parse().ok());
    let decision = crate::planner::Decision::Keep;
    crate::planner::status::refresh(&mut status, facts, plan.as_ref(), &decision, &[], look.now);
    let word = if reason.needs_somebody() { reason } else { Reason::Terminating };
    for (type_, truth, reason) in [(UP_TO_DATE, Truth::Unknown, reason), (RECONCILING, Truth::True, word)] {
        conditions::set(
            &mut status.conditions,
            type_,
            truth,
            reason.as_str(),
            message,
            facts.generation,
            look.now,
        );
    }
    save(&look.cluster, &look.read, &status).await?;
    Ok(after)
}

/// Has Temporal forget a deployment of which it lists nothing any more: a namespace has room for a hundred. What it does not
/// forget is left to it.
async fn forget_deployment(look: &Look<'_>) {
    let is_empty = look.facts.described().is_some_and(|described| described.versions.is_empty());
    let (Some(temporal), true, None) = (&look.temporal, is_empty, look.facts.other_manager()) else { return };
    let of = &look.facts.deployment;
    if let Err(error) = temporal.delete_deployment(of, &look.facts.identity).await {
        tracing::debug!(%of, %error, "Temporal does not forget a deployment");
    }
}

async fn done(look: &Look<'_>) -> Result<Duration, ClusterError> {
    if look.facts.spec.deletion_policy == DeletionPolicy::Delete {
        look.children.forget_revisions().await?;
        forget_deployment(look).await;
    }
    let_go(look.cx, &look.cluster, &look.read).await
}

/// Takes the finalizer away.
async fn let_go(cx: &Context, cluster: &Cluster, read: &Read) -> Result<Duration, ClusterError> {
    let left: Vec<_> =
        finalizers(&read.object).into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    let op = json!({"op": "add", "path": "/metadata/finalizers", "value": left});
    match cluster.patch(Kind::Workers, &read.object, false, vec![op]).await {
        Ok(_) | Err(ClusterError::Gone(_)) => {
            cx.forget(read.meta("namespace"), read.meta("name"));
            Ok(LATER)
        }
        Err(error) => Err(error),
    }
}
