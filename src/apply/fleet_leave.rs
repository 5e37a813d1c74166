//! Removes nodes from a fleet: a node is asked to leave first, and deleted once its plan waits for nothing else.

use serde_json::json;

use super::fleet_children::Removed;
use super::many::{OnFailure, for_each_concurrent};
use crate::api::{NodeName, RemovalId};
use crate::observe::FleetScope;
use crate::planner::fleet::leave::Leave;
use crate::planner::fleet::{ChildFacts, FleetFacts};
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{ClusterError, Key, Kind, Part, PatchOp, Target};

impl FleetScope {
    /// Removes nodes of the set that serves, if the API server confirms the assumptions: nodes that are assumed to be
    /// down must be down, and before any other node is removed, the nodes that should serve must serve. The fleet has to
    /// be reconciled again if something differs from what was assumed, or if a claim is not released yet.
    pub(crate) async fn remove_if_pods_confirmed(
        &self,
        facts: &FleetFacts,
        leave: Leave,
        why: &str,
    ) -> Result<Removed, ClusterError> {
        // A node that was asked to leave serves until it is deleted, and a node that is deleted before it depends on
        // that.
        let serves_on = |c: &ChildFacts| c.clone().with(|f| f.leave.asked = false);
        let asked_stay: Vec<ChildFacts> = facts.children.iter().map(serves_on).collect();
        let mut removed = Removed::default();
        for (children, ask, delete) in [
            (asked_stay.as_slice(), Vec::new(), leave.delete),
            (facts.children.as_slice(), leave.ask, Vec::new()),
        ] {
            let is_down = |name: &NodeName| children.iter().any(|c| c.name == *name && c.is_down());
            let (ask_down, ask): (Vec<NodeName>, Vec<NodeName>) = ask.into_iter().partition(is_down);
            let (delete_down, delete): (Vec<NodeName>, Vec<NodeName>) = delete.into_iter().partition(is_down);
            let down = Leave { ask: ask_down, delete: delete_down };
            let of_down = |c: &&ChildFacts| down.ask.contains(&c.name) || down.delete.contains(&c.name);
            let those: Vec<ChildFacts> = children.iter().filter(of_down).cloned().collect();
            for (children, leave) in [(those.as_slice(), down), (children, Leave { ask, delete })] {
                let taken: Vec<&str> = leave.ask.iter().chain(&leave.delete).map(NodeName::as_str).collect();
                if taken.is_empty() {
                    continue;
                }
                // Those that leave whatever the others do are broken, or have no running pod.
                let broken = |c: &&ChildFacts| taken.contains(&c.name.as_str()) && !c.main_container_runs();
                let broken: Vec<&str> = children.iter().filter(broken).map(|c| c.name.as_str()).collect();
                let is_old_news =
                    !broken.is_empty() && !self.find_running_pods(children, &broken).await?.is_empty();
                if is_old_news || self.find_stale_pods(children, &taken).await?.is_some() {
                    removed.needs_requeue = true;
                } else {
                    removed.is_kept_by(self.let_go(leave, why).await?);
                }
            }
        }
        Ok(removed)
    }

    /// Asks nodes to leave, and deletes those that were asked before and wait for nothing else. Every removal of a node
    /// goes through here. A node whose claims are kept is deleted only after it no longer owns them: garbage collection
    /// would delete them with it. Returns what one of these nodes waits for, in a sentence.
    pub(crate) async fn let_go(&self, leave: Leave, why: &str) -> Result<Option<String>, ClusterError> {
        let (delete, kept) = self.without_kept(leave.delete).await?;
        for_each_concurrent(delete, OnFailure::StopUnlessConflict, |name| async move {
            self.delete_node(&name, why).await
        })
        .await?;
        for_each_concurrent(leave.ask, OnFailure::StopUnlessConflict, |name| async move {
            self.request_removal(&name).await
        })
        .await?;
        Ok(kept)
    }

    /// Withdraws the requests that nodes leave: the nodes stay.
    pub(crate) async fn keep(&self, names: Vec<NodeName>) -> Result<(), ClusterError> {
        let clear = |name: NodeName| async move {
            self.patch_node(&name, |_| PatchOp::remove("/spec/removalID")).await
        };
        for_each_concurrent(names, OnFailure::StopUnlessConflict, clear).await.map(drop)
    }

    async fn request_removal(&self, name: &NodeName) -> Result<(), ClusterError> {
        self.patch_node(name, |meta| PatchOp::set("/spec/removalID", json!(RemovalId::at(meta.generation))))
            .await
    }

    async fn patch_node(
        &self,
        name: &NodeName,
        op: impl FnOnce(&Meta) -> PatchOp,
    ) -> Result<(), ClusterError> {
        let node = self.view.nodes.get(&Key::new(&self.fleet.meta.namespace, name.as_str()));
        let Some(node) = node.filter(|node| !node.meta.terminating) else { return Ok(()) };
        let target = Target::of(Kind::StatefulNode, &node.meta);
        match self.cluster.patch(target, Part::Main, vec![op(&node.meta)]).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
