//! The orchestrator: the reconcile of one fleet, as a pipeline of values. Each stage consumes the result of the one
//! before it, so that no stage can be left out, repeated or reordered.
//!
//! [`Fleet`] → `probe` → `Probed` → `decide` → `Decided` → `act` → `Acted` → `report` → [`Next`]

mod act;
mod change;
mod config;
mod context;
mod decide;
mod hooks;
mod names;
mod pods;
mod probe;
mod report;
mod requests;
mod stored;

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::events::Event;
use super::record::Progress;
use super::save::{Urgency, save};
use super::{Context, Next, ReconcileError};
use crate::api::Reason;
use crate::observe::FleetScope;
use crate::observe::pods::PodFleet;
use crate::planner::fleet::report::spec_is_unreadable;
use crate::planner::fleet::requests::Remark;
use context::Fleet;
pub use names::KINDS_OF_A_SET;
use pods::OfPods;
use windlass_kube_port::observed::{ObservedFleet, ObservedRollout};
use windlass_kube_port::{Key, Kind};

/// Reconciles one fleet.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(stored) = cx.view.fleets.get(key) else { return Ok(Next::on_event()) };
    let now = cx.clock.now();
    let config = config::look(cx, &stored).await?;
    match cx.fleet_scope(&stored, config.digest.as_deref(), now) {
        Some(scope) => {
            let mut fleet = Fleet::new(cx, stored, scope, now);
            fleet.report.pending = config.pending;
            fleet.report.look_again = config.look_again;
            fleet.report.remarks.extend(config.unread.map(Remark::message_only));
            advance(fleet).await
        }
        None => unreadable_spec(cx, &stored, now).await,
    }
}

/// Reconciles a StatefulSetRollout, as a fleet of pods. `refused`: why some of it cannot be held.
pub(super) async fn reconcile_pods(
    cx: &Context,
    fleet: Arc<ObservedFleet>,
    scope: FleetScope,
    stored: Arc<ObservedRollout>,
    pods: Arc<PodFleet>,
    refused: Option<String>,
) -> Result<Next, ReconcileError> {
    let now = scope.now;
    let of_pods = OfPods { stored, pods, refused, overwritten: Vec::new() };
    advance(Fleet { of_pods: Some(of_pods), ..Fleet::new(cx, fleet, scope, now) }).await
}

async fn advance(fleet: Fleet<'_>) -> Result<Next, ReconcileError> {
    let recorder = fleet.scope.recorder.clone();
    let (cx, meta, kind) = (fleet.cx, fleet.stored.clone(), fleet.scope.kind());
    let next = stages(fleet).await;
    // Nodes may have been created or deleted even if the reconcile failed.
    for recorded in recorder.take() {
        cx.events.record(kind, &meta.meta, &recorded);
    }
    next
}

async fn stages(fleet: Fleet<'_>) -> Result<Next, ReconcileError> {
    fleet.probe().await?.decide().act().await?.report().await
}

async fn unreadable_spec(
    cx: &Context,
    fleet: &ObservedFleet,
    now: DateTime<Utc>,
) -> Result<Next, ReconcileError> {
    let sentence = fleet.spec.as_ref().err().cloned().unwrap_or_default();
    let mut status = (*fleet.status).clone();
    spec_is_unreadable(&mut status, &sentence, fleet.meta.generation, now);
    let (kind, before) = (Kind::NodeDeployment, &*fleet.status);
    let next = save(cx, kind, &fleet.meta, before, &status, Urgency::Now, Progress::default()).await?;
    let cause = format!("{}/{sentence}", fleet.meta.generation);
    cx.events.record(kind, &fleet.meta, &Event::warning(Reason::InvalidSpec, cause, sentence));
    Ok(next)
}

/// Reconciles a fleet with a scope of which the test keeps a clone.
#[cfg(test)]
pub(super) async fn reconcile_in(
    cx: &Context,
    stored: std::sync::Arc<ObservedFleet>,
    scope: crate::observe::FleetScope,
) -> Result<Next, ReconcileError> {
    let now = scope.now;
    advance(Fleet::new(cx, stored, scope, now)).await
}
