//! The state that the stages of a node's reconcile share.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::of_fleet::OfFleet;
use crate::api::conditions::{self, STALLED, Truth};
use crate::api::{Reason, SidecarStatus, StatefulNodeSpec, StatefulNodeStatus};
use crate::apply::node_objects;
use crate::controller::events::Event;
use crate::controller::{Context, ReconcileError};
use crate::planner::node::NodeFacts;
use crate::tasks::NodeScope;
use windlass_kube_port::observed::ObservedNode;
use windlass_kube_port::{Key, Kind};

/// A node during one reconcile.
pub(super) struct Node<'a> {
    pub(super) cx: &'a Context,
    pub(super) scope: NodeScope,
    /// The node as it was when the reconcile began.
    pub(super) stored: Arc<ObservedNode>,
    pub(super) of_fleet: OfFleet,
    pub(super) now: DateTime<Utc>,
    pub(super) report: ReconcileFindings,
}

/// The findings of a reconcile outside the node's plan.
#[derive(Default)]
pub(super) struct ReconcileFindings {
    /// The part of the spec that could not be applied although the plan continues, in one sentence.
    pub(super) not_applied: Option<String>,
    /// Why the node's volume claims could not be created, in one sentence.
    pub(super) unclaimed: Option<String>,
    /// True if the spec's claim retention was applied, false if that failed; `None` if the reconcile did not get that
    /// far.
    pub(super) claims_applied: Option<bool>,
    /// The IDs of the stored plan's tasks that were already over.
    pub(super) finished_tasks: Vec<String>,
    /// The sidecar's last answer, while a task or the fleet waits for it.
    pub(super) sidecar: Option<SidecarStatus>,
}

/// A failed reconcile, with its findings so far.
pub(super) struct Failed<'a> {
    pub(super) node: Node<'a>,
    pub(super) error: ReconcileError,
    /// True if the status is already written: the error is from outside the plan.
    pub(super) is_reported: bool,
}

impl<'a> Node<'a> {
    pub(super) fn new(cx: &'a Context, key: &Key, stored: Arc<ObservedNode>) -> Self {
        let now = cx.clock.now();
        let scope = cx.node_scope(key, &stored, now);
        let of_fleet = OfFleet::of(cx.fleet_of(&stored.meta));
        let report =
            ReconcileFindings { sidecar: stored.status.sidecar.clone(), ..ReconcileFindings::default() };
        Self { cx, scope, stored, of_fleet, now, report }
    }

    /// Everything that a decision depends on, as it is now.
    pub(super) fn facts(&self) -> NodeFacts {
        self.scope.facts(&self.stored)
    }

    pub(super) fn status(&self) -> &StatefulNodeStatus {
        &self.stored.status
    }

    pub(super) fn failed(self, error: ReconcileError) -> Box<Failed<'a>> {
        Box::new(Failed { node: self, error, is_reported: false })
    }

    /// Like [`Self::failed`], after the status is written.
    pub(super) fn failed_after_save(self, error: ReconcileError) -> Box<Failed<'a>> {
        Box::new(Failed { node: self, error, is_reported: true })
    }

    /// What the API server forbids, in one sentence, if the last reconcile failed as well: the first refusal may be
    /// temporary.
    pub(super) fn denial(&self, error: &ReconcileError) -> Option<String> {
        error.denial().filter(|_| self.cx.failures.has(Kind::StatefulNode, &self.scope.key))
    }

    /// What the API server refuses permanently, or forbids, in one sentence.
    pub(super) fn refusal(&self, error: &ReconcileError) -> Option<String> {
        self.denial(error).or_else(|| error.refused())
    }

    /// Applies the claim retention: makes the node an owner of its claims or removes that reference. Returns a sentence
    /// if a claim belongs to another node.
    pub(super) async fn apply_to_claims(
        &mut self,
        spec: &StatefulNodeSpec,
    ) -> Result<Option<String>, ReconcileError> {
        let applied = node_objects::apply_to_claims(&self.scope, &self.stored, spec).await;
        self.report.claims_applied = Some(applied.is_ok());
        applied
    }

    /// The part of the spec that could not be applied according to the stored status, for a reconcile that applies
    /// nothing: without it the
    /// condition would change for one write. Another spec may be applicable, unless a name is taken.
    pub(super) fn still_not_applied(&self) -> Option<String> {
        let status = self.status();
        let said = conditions::find(&status.conditions, STALLED)
            .filter(|c| c.status == Truth::True.as_ref() && c.reason == Reason::InvalidSpec.as_ref())?;
        let is_same_spec = status.observed_generation == self.stored.meta.generation;
        let is_taken = || {
            let known = self.scope.caches.probes.foreign.get(&self.stored.meta.uid);
            self.scope.service().is_none() && known.is_some_and(|(_, sentence)| sentence == said.message)
        };
        (is_same_spec || is_taken()).then(|| said.message.clone())
    }

    pub(super) fn record(&self, event: &Event) {
        self.cx.events.record(Kind::StatefulNode, &self.stored.meta, event);
    }
}
