//! The fleet of a node, whose spec contains the node's hooks.

use std::sync::Arc;

use crate::api::{Ending, Hook, NodeDeploymentSpec, Rejected};
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::cluster::{Key, View};
use crate::revision::RevisionData;

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

    /// True if the fleet has decided on the spec that it has now, and the node still holds what it decided. Until then
    /// the node is about to be granted something else, and must not be brought to what it was granted before only because
    /// the hook that kept it from there was taken back in the same change.
    pub(super) fn has_decided_on(&self, view: &View, node: &ObservedNode) -> bool {
        let (Some(fleet), Ok(spec)) = (&self.fleet, &node.spec) else { return true };
        let status = &fleet.status;
        if status.observed_generation != fleet.meta.generation {
            return false;
        }
        let Some(rollout) = &status.rollout else {
            // An abort gives back what was granted and not carried out.
            let granted = spec.grant_id().filter(|id| !id.is_by_abort());
            let is_aborted = status.rejected.as_ref().and_then(Rejected::ending) == Some(Ending::Aborted);
            return !is_aborted || granted.is_none_or(|id| Some(id) == node.status.spent_grant_id());
        };
        if rollout.own_revisions {
            return true;
        }
        let stored = view.revisions.get(&Key::new(&fleet.meta.namespace, &rollout.target_revision));
        let target = stored.and_then(|stored| RevisionData::from_value(&stored.data.value()).ok());
        target.is_none_or(|target| target.diff(&RevisionData::of(spec)).is_empty())
    }

    /// True if the fleet requests a retry of this hook task of one of its nodes.
    pub(super) fn retries(&self, tried: &str) -> bool {
        let obeyed = self.fleet.as_ref().and_then(|fleet| fleet.status.hook_retry.as_ref());
        obeyed.is_some_and(|retry| retry.tasks.iter().any(|task| task == tried))
    }
}
