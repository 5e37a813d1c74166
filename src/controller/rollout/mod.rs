//! The reconcile of a StatefulSetRollout: it selects StatefulSets, and is then a fleet whose nodes are their pods.

pub(crate) mod selection;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::fleet::reconcile_pods;
use super::record::Progress;
use super::save::{Urgency, save};
use super::{Context, Next, ReconcileError};
use crate::api::StatefulSetRolloutSpec;
use crate::api::names::FINALIZER_RELEASE;
use crate::apply::hold;
use crate::engine::{Builtin, Recipe};
use crate::observe::pods::{PodFleet, PodRecipes, as_fleet};
use crate::planner::fleet::pods::is_adopted;
use crate::planner::fleet::report::spec_is_unreadable;
use selection::{Selection, controlled, select, selects};
use windlass_kube_port::observed::{Meta, ObservedRollout};
use windlass_kube_port::{Cluster, ClusterError, Key, Kind, Part, PatchOp, Target, View};

/// The requeue delay while a StatefulSet does not exist that no watch shows if Windlass or another operator creates it.
const REQUEUE_MISSING: Duration = Duration::from_secs(30);

/// Reconciles one StatefulSetRollout.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(stored) = cx.view.rollouts.get(key) else { return Ok(Next::on_event()) };
    let now = cx.clock.now();
    let has_finalizer = stored.finalizers.iter().any(|finalizer| finalizer == FINALIZER_RELEASE);
    if stored.meta.terminating {
        return if has_finalizer { release(cx, &stored).await } else { Ok(Next::on_event()) };
    }
    let Ok(spec) = &stored.spec else { return unreadable_spec(cx, &stored, now).await };
    if !has_finalizer {
        let finalizers: Vec<&str> =
            stored.finalizers.iter().map(String::as_str).chain([FINALIZER_RELEASE]).collect();
        patch(cx, &stored, PatchOp::set("/metadata/finalizers", json!(finalizers))).await?;
        // The write itself requeues the object.
        return Ok(Next::on_event());
    }
    let selection = selected(&cx.view, &*cx.cluster, &stored.meta, spec).await;
    let selection = selection.map_err(ReconcileError::Observe)?;
    let recipe = |builtin| {
        let recipe = cx.registry.recipe(&Recipe::builtin(builtin).name);
        recipe.cloned().map_err(|error| ReconcileError::Plan(error.to_string()))
    };
    let recipes = PodRecipes { update: recipe(Builtin::PodUpdate)?, move_: recipe(Builtin::MoveNode)? };
    let is_missing = !selection.missing.is_empty();
    let pods = PodFleet::new(&stored, selection.sets, selection.missing, spec.strategy.groups, recipes);
    let pods = Arc::new(pods);
    let Some(fleet) = as_fleet(&stored, &pods, &cx.view) else { return Ok(Next::on_event()) };
    let Some(scope) = cx.rollout_scope(&fleet, pods.clone(), now) else { return Ok(Next::on_event()) };
    let refused = selection.refused.into_iter().next();
    let next = reconcile_pods(cx, fleet, scope, stored, pods, refused).await?;
    Ok(if is_missing { next.within(REQUEUE_MISSING) } else { next })
}

/// What a StatefulSetRollout selects among the StatefulSets in the caches. Asks about each missing one whether no watch
/// here shows it, since Windlass or another operator created it.
pub(crate) async fn selected(
    view: &View,
    cluster: &dyn Cluster,
    rollout: &Meta,
    spec: &StatefulSetRolloutSpec,
) -> Result<Selection, ClusterError> {
    let sets = view.stateful_sets.list(&rollout.namespace, |_| true);
    let others = view.rollouts.list(&rollout.namespace, |_| true);
    let mut selection = select(rollout, spec, &sets, &others);
    let strays = |key: &Key| {
        let set = view.stateful_sets.get(key)?;
        selection::strays(&set, &view.pods.group(&key.namespace, &set.meta.uid))
    };
    let (sets, strays): (Vec<_>, Vec<_>) = std::mem::take(&mut selection.sets)
        .into_iter()
        .map(|key| (strays(&key), key))
        .partition(|(why, _)| why.is_none());
    selection.sets = sets.into_iter().map(|(_, key)| key).collect();
    selection.refused.extend(strays.into_iter().filter_map(|(why, _)| why));
    let mut refused = Vec::new();
    for name in &selection.missing {
        let found = cluster.get(Kind::StatefulSet, &rollout.namespace, name).await?;
        let found = found.map(|found| Meta::read(&found));
        if let Some(owner) = found.as_ref().and_then(Meta::controller) {
            refused.push((name.clone(), controlled(name, &owner.kind, &owner.name)));
        }
    }
    selection.missing.retain(|name| !refused.iter().any(|(known, _)| known == name));
    selection.refused.extend(refused.into_iter().map(|(_, sentence)| sentence));
    Ok(selection)
}

/// True if a StatefulSetRollout other than the one with this UID selects the StatefulSet.
pub(super) fn is_selected(cx: &Context, set: &Meta, except: &str) -> bool {
    let rollouts = cx.view.rollouts.list(&set.namespace, |other| other.meta.uid != except);
    rollouts.iter().any(|rollout| selects(rollout, set))
}

/// Restores the update strategy of each StatefulSet, and lets the object go.
async fn release(cx: &Context, stored: &ObservedRollout) -> Result<Next, ReconcileError> {
    let mut failed = None;
    for set in cx.view.stateful_sets.list(&stored.meta.namespace, is_adopted) {
        if !is_selected(cx, &set.meta, &stored.meta.uid)
            && let Err(error) = hold::release(&*cx.cluster, &set).await
        {
            failed.get_or_insert(error);
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let left: Vec<&String> = stored.finalizers.iter().filter(|name| *name != FINALIZER_RELEASE).collect();
    patch(cx, stored, PatchOp::set("/metadata/finalizers", json!(left))).await?;
    Ok(Next::on_event())
}

async fn patch(cx: &Context, stored: &ObservedRollout, op: PatchOp) -> Result<(), ReconcileError> {
    let target = Target::of(Kind::StatefulSetRollout, &stored.meta);
    cx.cluster.patch(target, Part::Main, vec![op]).await.map(drop).map_err(ReconcileError::Persist)
}

async fn unreadable_spec(
    cx: &Context,
    stored: &ObservedRollout,
    now: DateTime<Utc>,
) -> Result<Next, ReconcileError> {
    let sentence = stored.spec.as_ref().err().cloned().unwrap_or_default();
    let mut status = (*stored.status).clone();
    spec_is_unreadable(&mut status.rollout, &sentence, stored.meta.generation, now);
    let (kind, before) = (Kind::StatefulSetRollout, &*stored.status);
    save(cx, kind, &stored.meta, before, &status, Urgency::Now, Progress::default()).await
}
