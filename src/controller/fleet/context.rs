//! What the stages of a fleet's reconcile work with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::api::{Reason, RevisionName};
use crate::cluster::Kind;
use crate::cluster::observed::ObservedFleet;
use crate::controller::events::Event;
use crate::controller::{Context, ReconcileError};
use crate::planner::fleet::report::Invalid;
use crate::tasks::FleetScope;

/// A fleet in one reconcile.
pub(super) struct Fleet<'a> {
    pub(super) cx: &'a Context,
    /// The fleet as it is stored. The scope's may have a status that was repaired.
    pub(super) stored: Arc<ObservedFleet>,
    pub(super) scope: FleetScope,
    pub(super) now: DateTime<Utc>,
    pub(super) report: ReconcileFindings,
}

/// What a reconcile found out and did beside its plan.
#[derive(Default)]
pub(super) struct ReconcileFindings {
    /// The ControllerRevision of what is wanted.
    pub(super) update_revision: Option<RevisionName>,
    /// What could not be applied although the rest goes on, in a sentence.
    pub(super) not_applied: Option<String>,
    /// What a set that should be gone waits for, in a sentence.
    pub(super) waits_for: Option<String>,
    /// Whether something is left of a set that goes which no watch shows, or a node that leaves rests on others that are not
    /// as they were taken to be.
    pub(super) needs_requeue: bool,
    /// The IDs of the stored plan's tasks that were over before.
    pub(super) finished_tasks: Vec<String>,
    /// The first thing that failed beside the plan: it is tried again.
    pub(super) error: Option<ReconcileError>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        cx: &'a Context,
        stored: Arc<ObservedFleet>,
        scope: FleetScope,
        now: DateTime<Utc>,
    ) -> Self {
        Self { cx, stored, scope, now, report: ReconcileFindings::default() }
    }

    pub(super) fn record(&self, event: &Event) {
        self.cx.events.record(Kind::NodeDeployment, &self.scope.fleet.meta, event);
    }

    pub(super) fn warn(&self, reason: Reason, cause: impl Into<String>, note: impl Into<String>) {
        self.record(&Event::warning(reason, cause, note));
    }

    /// Takes in that something beside the plan failed. What the API server refuses for good is the spec's fault.
    pub(super) fn note(&mut self, error: ReconcileError) {
        if let Some(sentence) = error.refused_delete() {
            // Nothing of the template is wrong with that, and it may be allowed later.
            self.report.not_applied.get_or_insert(sentence);
            return;
        }
        if let Some(sentence) = error.refusal() {
            let sentence = format!("template: the API server refuses it: {sentence}");
            self.scope.invalid.get_or_insert(Invalid::lasting(sentence));
            return;
        }
        if let Some(sentence) = self.denial(&error) {
            self.report.not_applied.get_or_insert(sentence);
        }
        self.report.error.get_or_insert(error);
    }

    /// What the API server does not allow, in a sentence, if the last reconcile failed as well: it may pass.
    fn denial(&self, error: &ReconcileError) -> Option<String> {
        let key = self.scope.fleet.meta.key();
        error.denial().filter(|_| self.cx.memory.has_failed(Kind::NodeDeployment, &key))
    }
}
