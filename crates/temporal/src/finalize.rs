//! The finalizer: the deletion of a WorkerDeployment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use windlass_core::api::conditions::{self, RECONCILING, Truth, UP_TO_DATE};
use windlass_kube_port::{ClusterError, Event, Kind, Part, PatchOp, Target};

use crate::api::names::{ANNOTATION_DELETE, FINALIZER};
use crate::api::{DeletionPolicy, Reason, VersionResource};
use crate::context::Context;
use crate::observe::{self, Read};
use crate::planner::TemporalState;
use crate::planner::deletion::{Step, delete_now, in_use, now_hint, step};
use crate::planner::facts::reason_of;
use crate::port::{BuildId, TemporalError};
use crate::reconcile::state::{Reconcile, save, unreadable};

/// Requeue after a write.
const SOON: Duration = Duration::from_secs(1);
/// Requeue while an operation that takes minutes is in progress.
const LATER: Duration = Duration::from_secs(5);
/// How often one reconcile calls Temporal under `windlass.dev/delete: now`: a response may be lost, or a token stale.
const TRIES: u32 = 3;

/// Carries out the next step of the deletion. Returns when to requeue.
pub(crate) async fn finalize(mut reconcile: Reconcile<'_>) -> Result<Duration, ClusterError> {
    if let Err(error) = reconcile.end_for_deletion().await {
        let message = format!("{error}; {}", now_hint(&reconcile.facts.namespace, &reconcile.facts.name));
        return report(&reconcile, Reason::Terminating, &message, LATER).await;
    }
    // The versions keep their other objects as long as their workers, now without an owner.
    let kinds = reconcile.kinds_in_use().await;
    reconcile.maintain_resources(&kinds, &BTreeMap::new()).await;
    let mut next = step(&reconcile.facts, reconcile.now);
    if let Step::Take { count, .. } = &next
        && let Some(temporal) = reconcile.temporal.clone()
        && !count.is_empty()
    {
        for build in count.clone() {
            observe::count(&mut reconcile.facts, &build, &*temporal).await;
        }
        next = step(&reconcile.facts, reconcile.now);
    }
    if let Some(message) = serve_workflows(&reconcile).await {
        return report(&reconcile, Reason::Terminating, &message, SOON).await;
    }
    let mut result = call_temporal(&reconcile, &next).await;
    if reconcile.facts.delete_now {
        for left in (0..TRIES).rev() {
            let Err(error) = &result else { break };
            if left == 0 {
                // Continue without Temporal.
                let (reason, message) = (reason_of(error), error.to_string());
                reconcile.facts.temporal = TemporalState::Lost { reason, message };
            } else {
                reconcile.observe_temporal_again().await;
            }
            next = step(&reconcile.facts, reconcile.now);
            result = call_temporal(&reconcile, &next).await;
        }
    }
    match (next, result) {
        (Step::Done, _) | (Step::Release, Ok(())) => finish(&reconcile).await,
        (Step::Release, Err(_)) => Ok(SOON),
        (Step::Wait { reason, message }, _) => report(&reconcile, reason, &message, LATER).await,
        (Step::Write(_), Ok(())) => {
            let message = "Windlass routed the tasks to workers without a version";
            report(&reconcile, Reason::Terminating, message, SOON).await
        }
        (Step::Write(_), Err(error)) => report(&reconcile, reason_of(&error), &error.to_string(), SOON).await,
        (Step::Take { workers, records, message, .. }, _) => {
            let refused = delete_versions(&reconcile, &workers, &records).await;
            let soon = if workers.is_empty() { LATER } else { SOON };
            report(&reconcile, Reason::Terminating, refused.as_ref().unwrap_or(&message), soon).await
        }
    }
}

/// Deletes an object whose spec or connection cannot be read. Its connection is unknown, so Windlass keeps its workers until a person
/// sets `windlass.dev/delete: now`. Without workers, Windlass deletes the object at once.
pub(crate) async fn finalize_unreadable(
    cx: &Context,
    read: &Read,
    reason: Reason,
    sentence: &str,
) -> Result<Duration, ClusterError> {
    let children = cx.children(read);
    let workers = cx.view.deployments.group(&read.meta().namespace, &read.meta().name);
    if workers.is_empty() {
        children.forget_revisions().await?;
        return remove_finalizer(cx, read).await;
    }
    if read.annotation(ANNOTATION_DELETE) == Some("now") {
        for deployment in &workers {
            cx.cluster.delete(Target::of(Kind::Deployment, &deployment.meta)).await?;
        }
        return Ok(SOON);
    }
    let sentence = format!(
        "Windlass cannot read the spec or its connection, so it keeps the workers ({sentence}). Fix it, or run: {}",
        delete_now(&read.meta().namespace, &read.meta().name)
    );
    unreadable(cx, read, reason, &sentence).await?;
    Ok(LATER)
}

/// Makes the step's call to Temporal, if it has one.
async fn call_temporal(reconcile: &Reconcile<'_>, step: &Step) -> Result<(), TemporalError> {
    match (step, &reconcile.temporal, reconcile.scope().guard()) {
        (Step::Write(write), _, _) => reconcile.scope().write(write).await,
        (Step::Release, Some(temporal), Some(guard)) => {
            temporal.set_manager(&reconcile.facts.deployment, false, &guard).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Maintains the workers that workflows still need. Returns a sentence if some did not exist.
async fn serve_workflows(reconcile: &Reconcile<'_>) -> Option<String> {
    let mut restored = None;
    for version in in_use(&reconcile.facts, reconcile.now) {
        let build = &version.build;
        match reconcile.children.serve(&reconcile.facts, build, false).await {
            Ok(true) if version.workers.is_none() => {
                let note = format!("Windlass restores the workers of {build}: workflows may run on it");
                let cause = format!("{build}/{}", reconcile.now);
                reconcile.record_event(Event::normal(Reason::VersionRevived, cause, note.clone()));
                restored = Some(note);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(of = %reconcile.facts.deployment, %build, %error, "could not maintain workers");
            }
        }
    }
    restored
}

/// Deletes Deployments and records independently of each other. Returns the first error of the API server.
async fn delete_versions(
    reconcile: &Reconcile<'_>,
    workers: &[BuildId],
    records: &[BuildId],
) -> Option<String> {
    let mut refused = None;
    for build in workers {
        match reconcile.children.delete(build).await {
            Ok(()) if reconcile.facts.delete_now => reconcile.delete_record(build, true).await,
            Ok(()) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(of = %reconcile.facts.deployment, %build, %error, "could not delete workers; retrying");
                let message = error.message();
                refused.get_or_insert_with(|| format!("could not delete the workers of {build}: {message}"));
            }
        }
    }
    for build in records {
        reconcile.delete_record(build, false).await;
    }
    refused
}

async fn report(
    reconcile: &Reconcile<'_>,
    reason: Reason,
    message: &str,
    after: Duration,
) -> Result<Duration, ClusterError> {
    let facts = &reconcile.facts;
    let mut status = facts.status.clone();
    let plan = status.plan.as_ref().and_then(|raw| raw.parse().ok());
    let decision = crate::planner::Decision::Keep;
    crate::planner::status::refresh(&mut status, facts, plan.as_ref(), &decision, &[], reconcile.now);
    let busy_reason = if reason.needs_somebody() { reason } else { Reason::Terminating };
    for (type_, truth, reason) in
        [(UP_TO_DATE, Truth::Unknown, reason), (RECONCILING, Truth::True, busy_reason)]
    {
        conditions::set(
            &mut status.conditions,
            type_,
            truth,
            reason.as_ref(),
            message,
            facts.generation,
            reconcile.now,
        );
    }
    save(reconcile.cx, &reconcile.read, &status).await?;
    Ok(after)
}

/// Deletes Temporal's record of a deployment without versions: a namespace is limited to a hundred deployments. A
/// failure is ignored.
async fn forget_deployment(reconcile: &Reconcile<'_>) {
    let is_empty = reconcile.facts.described().is_some_and(|described| described.versions.is_empty());
    let (Some(temporal), true, None) = (&reconcile.temporal, is_empty, reconcile.facts.other_manager())
    else {
        return;
    };
    let of = &reconcile.facts.deployment;
    if let Err(error) = temporal.delete_deployment(of, &reconcile.facts.identity).await {
        tracing::debug!(%of, %error, "could not delete the record of a deployment in Temporal");
    }
}

async fn finish(reconcile: &Reconcile<'_>) -> Result<Duration, ClusterError> {
    match reconcile.facts.spec.deletion_policy {
        DeletionPolicy::Delete => {
            reconcile.children.forget_revisions().await?;
            forget_deployment(reconcile).await;
        }
        DeletionPolicy::Retain => {
            let of_versions =
                reconcile.facts.versions.values().flat_map(|version| version.resources.iter().flatten());
            let problem = of_versions.filter(|resource| !resource.applied).map(|resource| {
                let VersionResource { kind, name, message, .. } = resource;
                format!("{kind} {name} cannot be kept yet: {message}")
            });
            if let Some(problem) = problem.into_iter().next().filter(|_| !reconcile.facts.delete_now) {
                let message =
                    format!("{problem}; {}", now_hint(&reconcile.facts.namespace, &reconcile.facts.name));
                return report(reconcile, Reason::Terminating, &message, SOON).await;
            }
        }
    }
    remove_finalizer(reconcile.cx, &reconcile.read).await
}

/// Removes the finalizer.
async fn remove_finalizer(cx: &Context, read: &Read) -> Result<Duration, ClusterError> {
    let left: Vec<_> = read.finalizers().into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    let op = PatchOp::set("/metadata/finalizers", json!(left));
    match cx.cluster.patch(read.write_target(), Part::Main, vec![op]).await {
        Ok(_) | Err(ClusterError::NotFound { .. }) => {
            cx.forget(&read.meta().key());
            Ok(LATER)
        }
        Err(error) => Err(error),
    }
}
