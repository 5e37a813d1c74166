//! The state that the stages of a fleet's reconcile share.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::pods::OfPods;
use crate::api::{Reason, RevisionName};
use crate::controller::events::Event;
use crate::controller::{Context, ReconcileError};
use crate::planner::fleet::Blocker;
use crate::planner::fleet::budget::BudgetProblem;
use crate::planner::fleet::requests::Remark;
use crate::tasks::FleetScope;
use windlass_kube_port::observed::ObservedFleet;

/// A fleet during one reconcile.
pub(super) struct Fleet<'a> {
    pub(super) cx: &'a Context,
    /// The fleet as it is stored. The fleet in the scope may have a repaired status.
    pub(super) stored: Arc<ObservedFleet>,
    pub(super) scope: FleetScope,
    pub(super) now: DateTime<Utc>,
    pub(super) report: ReconcileFindings,
    /// What it is about, if it is a StatefulSetRollout.
    pub(super) of_pods: Option<OfPods>,
}

/// The findings of a reconcile outside its plan.
#[derive(Default)]
pub(super) struct ReconcileFindings {
    /// The ControllerRevision of the desired template.
    pub(super) update_revision: Option<RevisionName>,
    /// What could not be applied although the rest continues, in one sentence.
    pub(super) not_applied: Option<String>,
    /// What keeps the fleet from its PodDisruptionBudget; `None` if that was not examined.
    pub(super) budget: Option<Result<(), BudgetProblem>>,
    /// What the removal of a set waits for, in one sentence.
    pub(super) waits_for: Option<String>,
    /// True if the removal of a node depends on nodes that are not in the state that was assumed.
    pub(super) needs_requeue: bool,
    /// When to read the objects again that no watch shows; `None` if there are none.
    pub(super) look_again: Option<Duration>,
    /// Data that the template names and that has changed, but is not rolled out yet, in a sentence.
    pub(super) pending: Option<String>,
    /// A person's request that is refused in this reconcile.
    pub(super) remarks: Vec<Remark>,
    /// The IDs of the stored plan's tasks that were already over.
    pub(super) finished_tasks: Vec<String>,
    /// The first error outside the plan. It is retried.
    pub(super) error: Option<ReconcileError>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        cx: &'a Context,
        stored: Arc<ObservedFleet>,
        scope: FleetScope,
        now: DateTime<Utc>,
    ) -> Self {
        Self { cx, stored, scope, now, report: ReconcileFindings::default(), of_pods: None }
    }

    pub(super) fn record(&self, event: &Event) {
        self.cx.events.record(self.scope.kind(), &self.scope.fleet.meta, event);
    }

    pub(super) fn warn(&self, reason: Reason, cause: impl Into<String>, note: impl Into<String>) {
        self.record(&Event::warning(reason, cause, note));
    }

    /// Records an error from outside the plan. A permanent rejection by the API server is reported in the status
    /// instead of retried as an error.
    pub(super) fn note(&mut self, error: ReconcileError) {
        if let Some(sentence) = error.refused_delete() {
            // The template is not at fault, and the delete may be allowed later.
            self.report.not_applied.get_or_insert(sentence);
            return;
        }
        if let Some(sentence) = error.refusal() {
            self.scope.block(Blocker::TemplateRefused(sentence.to_owned()));
            return;
        }
        if let Some(sentence) = self.denial(&error) {
            self.report.not_applied.get_or_insert(sentence);
        }
        self.report.error.get_or_insert(error);
    }

    /// What the API server forbids, in one sentence, if the last reconcile failed as well: the first refusal may be
    /// temporary.
    fn denial(&self, error: &ReconcileError) -> Option<String> {
        let key = self.scope.fleet.meta.key();
        error.denial().filter(|_| self.cx.failures.has(self.scope.kind(), &key))
    }
}
