//! The reconcile of a WorkerDeployment: observe, decide, act, report. A plan is persisted before its first task runs,
//! and the result of a task before the next one does.

mod evacuation;
mod hooks;
mod plans;
mod proceed;
mod resources;
pub(crate) mod state;
mod versions;

use std::time::Duration;

use serde_json::json;
use windlass_core::api::RawPlan;
use windlass_kube_port::{ClusterError, Key, Part, PatchOp};

use crate::api::Reason;
use crate::api::names::FINALIZER;
use crate::connect::{self, Unresolved};
use crate::context::Context;
use crate::finalize;
use crate::observe::{self, Read};
use crate::planner::{Decision, decide};
use state::{Reconcile, unreadable};

/// Requeue of an object at rest, before jitter.
const RESYNC: Duration = Duration::from_secs(30);
/// No reconcile acts on caches that are older than this. Watches restart more often than that.
const STALE: Duration = Duration::from_secs(30);
/// Requeue while the caches are too old.
const WHILE_STALE: Duration = Duration::from_secs(3);
/// Requeue right away.
const IMMEDIATELY: Duration = Duration::from_millis(100);

/// Reconciles an object. Returns when to requeue it; `None` if it no longer exists.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Option<Duration>, ClusterError> {
    let Some(stored) = cx.view.workers.get(key) else {
        cx.forget(key);
        return Ok(None);
    };
    if cx.view.workers_outdated() > STALE {
        // A person may have changed the spec since: do not change Temporal because of a stale one.
        return Ok(Some(WHILE_STALE));
    }
    let read = Read::of(stored);
    let has_finalizer = read.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    if read.deleted_at().is_some() && !has_finalizer {
        cx.forget(key);
        return Ok(None);
    }
    let spec = match &read.spec {
        Ok(spec) => spec.clone(),
        Err(sentence) if read.deleted_at().is_some() => {
            return finalize::finalize_unreadable(cx, &read, Reason::InvalidSpec, sentence).await.map(Some);
        }
        Err(sentence) => {
            unreadable(cx, &read, Reason::InvalidSpec, sentence).await?;
            return Ok(Some(RESYNC));
        }
    };
    if !has_finalizer {
        let mut all = read.finalizers();
        all.push(json!(FINALIZER));
        let op = PatchOp::set("/metadata/finalizers", json!(all));
        cx.cluster.patch(read.write_target(), Part::Main, vec![op]).await?;
        return Ok(Some(IMMEDIATELY));
    }
    let last = read.status.connection.as_ref();
    match connect::connected(&cx.view, &key.namespace, &spec.connection, last) {
        Ok(connected) => Box::pin(run(Reconcile::new(cx, read, spec, connected).await)).await.map(Some),
        Err(Unresolved { reason, message }) if read.deleted_at().is_some() => {
            finalize::finalize_unreadable(cx, &read, reason, &message).await.map(Some)
        }
        Err(Unresolved { reason, message }) => {
            unreadable(cx, &read, reason, &message).await?;
            Ok(Some(RESYNC))
        }
    }
}

/// Decides and acts.
async fn run(mut state: Reconcile<'_>) -> Result<Duration, ClusterError> {
    if let Some(temporal) = state.temporal.clone() {
        observe::look_up_unlisted(&mut state.facts, &*temporal).await;
    }
    if state.facts.deleted_at.is_some() {
        return finalize::finalize(state).await;
    }
    let plan = match state.read.status.plan.as_ref().map(RawPlan::parse).transpose() {
        Ok(plan) => plan,
        Err(sentence) => return state.fail_unreadable_plan(&sentence).await,
    };
    state.check(plan.as_ref()).await;
    state.check_resources().await;
    state.check_hooks().await;
    state.obey_restart();
    let requests = state.requests();
    let decision = decide(&state.facts, plan.as_ref(), &requests);
    match decision {
        Decision::Keep | Decision::Refuse { .. } => state.proceed(plan, decision, &requests).await,
        decision => Box::pin(state.change(plan, decision, &requests)).await,
    }
}
