//! What is done for a WorkerDeployment that is deleted.

use std::time::Duration;

use serde_json::json;
use windlass_core::api::conditions::{self, RECONCILING, Truth, UP_TO_DATE};

use crate::api::names::FINALIZER;
use crate::api::{DeletionPolicy, Reason};
use crate::cluster::{ClusterError, Kind};
use crate::observe;
use crate::planner::deletion::{Step, step};
use crate::port::BuildId;
use crate::reconcile::look::{Look, finalizers, save};

/// How soon it is looked at again.
const SOON: Duration = Duration::from_secs(1);
/// How soon what takes minutes is looked at again.
const LATER: Duration = Duration::from_secs(5);

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
    match next {
        Step::Done => done(&look).await,
        Step::Wait { reason, message } => say(&look, reason, &message, LATER).await,
        Step::Release => {
            let guard = look.scope().guard();
            let mut freed = true;
            if let (Some(temporal), Some(guard)) = (&look.temporal, guard) {
                freed = temporal.set_manager(&look.facts.deployment, false, &guard).await.is_ok();
            }
            if freed || look.facts.delete_now { done(&look).await } else { Ok(SOON) }
        }
        Step::Write(write) => {
            let result = look.scope().write(&write).await;
            if look.facts.delete_now && result.is_err() {
                return done(&look).await;
            }
            let message = match &result {
                Ok(()) => "tasks are given back to workers without a version".to_owned(),
                Err(error) => error.to_string(),
            };
            let reason =
                result.err().map_or(Reason::Terminating, |error| crate::planner::facts::reason_of(&error));
            say(&look, reason, &message, SOON).await
        }
        Step::Take { workers, records, message, .. } => {
            take(&look, &workers, &records).await?;
            let soon = if workers.is_empty() { LATER } else { SOON };
            say(&look, Reason::Terminating, &message, soon).await
        }
    }
}

async fn take(look: &Look<'_>, workers: &[BuildId], records: &[BuildId]) -> Result<(), ClusterError> {
    for build in workers {
        look.children.delete(build).await?;
        if look.facts.delete_now {
            look.delete_record(build, true).await;
        }
    }
    for build in records {
        look.delete_record(build, false).await;
    }
    Ok(())
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
    let left: Vec<_> =
        finalizers(&look.read.object).into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    let op = json!({"op": "add", "path": "/metadata/finalizers", "value": left});
    match look.cluster.patch(Kind::Workers, &look.read.object, false, vec![op]).await {
        Ok(_) | Err(ClusterError::Gone(_)) => Ok(LATER),
        Err(error) => Err(error),
    }
}
