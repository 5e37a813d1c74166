//! The fleet of a node, whose spec contains the node's hooks.

use std::sync::Arc;

use crate::api::{Hook, NodeDeploymentSpec};
use crate::cluster::observed::ObservedFleet;

/// The node's view of its fleet.
#[derive(Clone, Debug, Default)]
pub(super) struct OfFleet {
    /// The fleet, if it exists and is not being deleted.
    pub(super) fleet: Option<Arc<ObservedFleet>>,
}

impl OfFleet {
    pub(super) fn of(fleet: Option<Arc<ObservedFleet>>) -> Self {
        Self { fleet: fleet.filter(|fleet| !fleet.meta.terminating) }
    }

    pub(super) fn spec(&self) -> Option<&Arc<NodeDeploymentSpec>> {
        self.fleet.as_ref()?.spec.as_ref().ok()
    }

    /// True if this version cannot read the fleet's spec: which hooks it has, and whether it is paused, is not known.
    pub(super) fn is_unreadable(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.spec.is_err())
    }

    pub(super) fn hooks(&self) -> &[Hook] {
        self.spec().map(|spec| spec.update_strategy.hooks.as_slice()).unwrap_or_default()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.spec().is_some_and(|spec| spec.paused)
    }

    /// True if the fleet requests a retry of this hook task of one of its nodes.
    pub(super) fn retries(&self, tried: &str) -> bool {
        let obeyed = self.fleet.as_ref().and_then(|fleet| fleet.status.hook_retry.as_ref());
        obeyed.is_some_and(|retry| retry.tasks.iter().any(|task| task == tried))
    }
}
