//! One look at a WorkerDeployment: what is, what should be, what is done about it. A plan is persisted before its first
//! task acts, and what a task did is persisted before the next one does.

mod carry_on;
mod hooks;
pub(crate) mod look;
mod plans;
mod versions;

use std::time::Duration;

use serde_json::json;
use windlass_core::api::RawPlan;

use crate::api::names::FINALIZER;
use crate::cluster::{Cluster, ClusterError, Kind};
use crate::context::Context;
use crate::goodbye;
use crate::observe::{self, Read};
use crate::planner::{Decision, decide};
use look::{Look, finalizers, unreadable};

/// How soon what is at rest is looked at again; jitter is added.
const REST: Duration = Duration::from_secs(30);
/// Right away.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Looks at an object, and answers how long after it is to be looked at again; none: it is gone.
pub async fn look(cx: &Context, namespace: &str, name: &str) -> Result<Option<Duration>, ClusterError> {
    let cluster = Cluster::new(cx.client.clone(), namespace);
    let Some(object) = cluster.get(Kind::Workers, name).await? else {
        cx.forget(namespace, name);
        return Ok(None);
    };
    let read = Read::of(object);
    let has_finalizer = finalizers(&read.object).iter().any(|finalizer| finalizer == FINALIZER);
    if read.deleted_at().is_some() && !has_finalizer {
        cx.forget(namespace, name);
        return Ok(None);
    }
    let spec = match &read.spec {
        Ok(spec) => spec.clone(),
        Err(sentence) if read.deleted_at().is_some() => {
            return goodbye::go_unread(cx, &cluster, &read, sentence).await.map(Some);
        }
        Err(sentence) => {
            unreadable(cx, &cluster, &read, sentence).await?;
            return Ok(Some(REST));
        }
    };
    if !has_finalizer {
        let mut all = finalizers(&read.object);
        all.push(json!(FINALIZER));
        let op = json!({"op": "add", "path": "/metadata/finalizers", "value": all});
        cluster.patch(Kind::Workers, &read.object, false, vec![op]).await?;
        return Ok(Some(AT_ONCE));
    }
    Box::pin(run(Look::new(cx, cluster, read, spec).await?)).await.map(Some)
}

/// Does what is next.
async fn run(mut look: Look<'_>) -> Result<Duration, ClusterError> {
    if let Some(temporal) = look.temporal.clone() {
        observe::ask_for_missing(&mut look.facts, &*temporal).await;
    }
    if look.facts.deleted_at.is_some() {
        return goodbye::go(look).await;
    }
    let plan = match look.read.status.plan.as_ref().map(RawPlan::parse).transpose() {
        Ok(plan) => plan,
        Err(sentence) => return look.end_unreadable(&sentence).await,
    };
    look.check(plan.as_ref()).await?;
    look.check_hooks().await;
    look.obey_restart();
    let asked = look.asked();
    let decision = decide(&look.facts, plan.as_ref(), &asked);
    match decision {
        Decision::Keep | Decision::Refuse { .. } => look.carry_on(plan, decision, &asked).await,
        decision => look.change(plan, decision, &asked).await,
    }
}
