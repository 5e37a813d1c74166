//! What the stages of a node's reconcile work with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::of_fleet::OfFleet;
use crate::api::{SidecarStatus, StatefulNodeSpec, StatefulNodeStatus};
use crate::apply::node_objects;
use crate::cluster::observed::ObservedNode;
use crate::cluster::{Key, Kind};
use crate::controller::events::Event;
use crate::controller::{Context, ReconcileError};
use crate::planner::node::NodeFacts;
use crate::tasks::NodeScope;

/// A node in one reconcile.
pub(super) struct Node<'a> {
    pub(super) cx: &'a Context,
    pub(super) scope: NodeScope,
    /// As it was when the reconcile began.
    pub(super) stored: Arc<ObservedNode>,
    pub(super) of_fleet: OfFleet,
    pub(super) now: DateTime<Utc>,
    pub(super) report: ReconcileFindings,
}

/// What a reconcile found out beside the node's plan.
#[derive(Default)]
pub(super) struct ReconcileFindings {
    /// What of the spec could not be applied although the plan goes on, in a sentence.
    pub(super) not_applied: Option<String>,
    /// Whether what the spec says of claims was carried out, where it came to that.
    pub(super) claims_applied: Option<bool>,
    /// The IDs of the stored plan's tasks that were over before.
    pub(super) finished_tasks: Vec<String>,
    /// What its sidecar last said while somebody waits for that.
    pub(super) sidecar: Option<SidecarStatus>,
}

/// A reconcile that failed, and what it had found out by then.
pub(super) struct Failed<'a> {
    pub(super) node: Node<'a>,
    pub(super) error: ReconcileError,
    /// Whether the status is written already: what failed, failed beside the plan.
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

    /// Everything that a decision rests on, as it is known now.
    pub(super) fn facts(&self) -> NodeFacts {
        self.scope.facts(&self.stored)
    }

    pub(super) fn status(&self) -> &StatefulNodeStatus {
        &self.stored.status
    }

    pub(super) fn failed(self, error: ReconcileError) -> Box<Failed<'a>> {
        Box::new(Failed { node: self, error, is_reported: false })
    }

    /// The same, once the status is written.
    pub(super) fn failed_beside(self, error: ReconcileError) -> Box<Failed<'a>> {
        Box::new(Failed { node: self, error, is_reported: true })
    }

    /// What the API server does not allow, in a sentence, if that is so for the second time: it may pass.
    pub(super) fn denial(&self, error: &ReconcileError) -> Option<String> {
        error.denial().filter(|_| self.cx.memory.has_failed(Kind::StatefulNode, &self.scope.key))
    }

    /// Makes the node's claims go with it, or stay. Answers with a sentence where one is another node's.
    pub(super) async fn apply_to_claims(
        &mut self,
        spec: &StatefulNodeSpec,
    ) -> Result<Option<String>, ReconcileError> {
        let applied = node_objects::apply_to_claims(&self.scope, &self.stored, spec).await;
        self.report.claims_applied = Some(applied.is_ok());
        applied
    }

    pub(super) fn record(&self, event: &Event) {
        self.cx.events.record(Kind::StatefulNode, &self.stored.meta, event);
    }
}
