//! The orchestrator: one fleet's reconcile, as a pipeline of values. Each stage consumes what the one before it returned, so
//! that none can be left out, done twice, or done in another order.
//!
//! [`Fleet::observe`] → [`Observed`] → `decide` → [`Decided`] → `apply` → [`Applied`] → `report` → [`Next`]

mod apply;
mod asked;
mod change;
mod decide;
mod hooks;
mod names;
mod observe;
mod report;
mod stored;

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::events::{Event, Tone};
use super::save::{Urgency, save};
use super::{Context, Next, ReconcileError};
use crate::cluster::observed::ObservedFleet;
use crate::cluster::{Key, Kind};
use crate::planner::fleet::report::spec_is_unreadable;
use crate::tasks::FleetScope;
use apply::Applied;
use decide::Decided;
pub(crate) use names::KINDS_OF_A_SET;
use observe::Observed;
use report::Report;

/// Brings one fleet nearer to what its spec says.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(stored) = cx.view.fleets.get(key) else { return Ok(Next::on_event()) };
    let now = cx.clock.now();
    match cx.fleet_scope(&stored, now) {
        Some(scope) => Fleet::new(cx, stored, scope, now).reconcile().await,
        None => unreadable_spec(cx, &stored, now).await,
    }
}

/// A fleet in one reconcile.
pub(super) struct Fleet<'a> {
    cx: &'a Context,
    /// The fleet as it is stored. The scope's may have a status that was repaired.
    stored: Arc<ObservedFleet>,
    scope: FleetScope,
    now: DateTime<Utc>,
    report: Report,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        cx: &'a Context,
        stored: Arc<ObservedFleet>,
        scope: FleetScope,
        now: DateTime<Utc>,
    ) -> Self {
        Self { cx, stored, scope, now, report: Report::default() }
    }

    pub(super) async fn reconcile(self) -> Result<Next, ReconcileError> {
        let (cx, fleet, recorder) = (self.cx, self.scope.fleet.clone(), self.scope.recorder.clone());
        let next = self.advance().await;
        // Nodes were made and deleted whatever came of the rest.
        for event in recorder.take() {
            let event = Event::normal(event.reason, event.cause, event.note);
            cx.events.record(Kind::NodeDeployment, &fleet.meta, &event);
        }
        next
    }

    async fn advance(self) -> Result<Next, ReconcileError> {
        let observed: Observed<'a> = self.observe().await?;
        let decided: Decided<'a> = observed.decide().await;
        let applied: Applied<'a> = decided.apply().await?;
        applied.report().await
    }

    fn record(&self, event: &Event) {
        self.cx.events.record(Kind::NodeDeployment, &self.scope.fleet.meta, event);
    }

    fn warn(&self, reason: &'static str, cause: impl Into<String>, note: impl Into<String>) {
        self.record(&Event::warning(reason, cause, note));
    }
}

async fn unreadable_spec(
    cx: &Context,
    fleet: &ObservedFleet,
    now: DateTime<Utc>,
) -> Result<Next, ReconcileError> {
    let sentence = fleet.spec.as_ref().err().cloned().unwrap_or_default();
    let mut status = (*fleet.status).clone();
    spec_is_unreadable(&mut status, &sentence, fleet.meta.generation, now);
    let next = save(cx, Kind::NodeDeployment, &fleet.meta, &*fleet.status, &status, Urgency::Now).await?;
    let cause = format!("{}/{sentence}", fleet.meta.generation);
    cx.events.send(Kind::NodeDeployment, &fleet.meta, Tone::Warning, "InvalidSpec", &cause, &sentence);
    Ok(next)
}
