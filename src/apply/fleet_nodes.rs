//! Creates and deletes a fleet's nodes. Other modules decide which nodes.

use serde_json::{Value, json};

use super::many::{OnFailure, for_each_concurrent};
use crate::api::names::ANNOTATION_RESTARTED_AT;
use crate::api::{ClaimRetention, NodeName, Reason, RolloutHash, SetName};
use crate::observe::FleetScope;
use crate::observe::fleet_scope::owner_reference;
use crate::observe::node_scope::{claim_names, deletes_claims, is_deleted_with};
use crate::planner::fleet::create::may_start;
use crate::planner::fleet::leave::together;
use crate::planner::fleet::{ChildFacts, FleetFacts};
use crate::render;
use windlass_kube_port::Event;
use windlass_kube_port::observed::{Observed, ObservedClaim, ObservedNode};
use windlass_kube_port::{ClusterError, Key, Kind, Target};

/// The result of checking whether a node may be deleted.
enum Removable {
    /// The node with this name may be deleted.
    Now(NodeName),
    /// The node must wait: a claim that is to be kept might be deleted with it. The sentence says which.
    Kept(String),
}

impl FleetScope {
    /// Creates the missing nodes of a set, each at the revision that `revision_for` returns for its ordinal, unless it
    /// returns `None`. The facts that are passed to `revision_for` include the nodes chosen for the ordinals before.
    pub(crate) async fn create_nodes(
        &self,
        facts: &FleetFacts,
        revision_for: impl Fn(&FleetFacts, i32) -> Option<RolloutHash>,
    ) -> Result<(), ClusterError> {
        let missing = facts.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let mut facts = facts.clone();
        let mut new = Vec::new();
        for ordinal in missing {
            if !may_start(&facts, ordinal) {
                continue;
            }
            let Some(revision) = revision_for(&facts, ordinal) else { continue };
            let restart = facts.record.restarted_at.clone();
            let Some(rendering) = facts.rendering(&revision, restart.as_ref()).cloned() else { continue };
            if self.node_spec(&revision).is_none() {
                continue;
            }
            let name = NodeName::of(&self.fleet.meta.name, &facts.set, ordinal);
            let domain = facts.domain_of_missing(ordinal);
            let child = ChildFacts::to_be_created(name, ordinal, revision, rendering.hash, restart, domain);
            facts.children.push(child.clone());
            new.push(child);
        }
        // A manifest is built when its turn comes: the manifests of all nodes would be thousands of copies of the
        // fleet's template.
        for_each_concurrent(new, OnFailure::Stop, |child| async move {
            let Some(manifest) = self.manifest(&child) else { return Ok(()) };
            let created = match self.cluster.create(Kind::StatefulNode, manifest).await {
                Ok(created) => created,
                // The watch will show who owns it.
                Err(ClusterError::AlreadyExists { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
            let note = format!("created node {}", child.name);
            self.recorder.record(Event::normal(Reason::NodeCreated, uid, note));
            Ok(())
        })
        .await
        .map(drop)
    }

    /// The manifest of a new node with these facts; `None` if its revision is gone.
    fn manifest(&self, child: &ChildFacts) -> Option<Value> {
        let name = child.name.as_str();
        let mut spec = (*self.node_spec(child.spec_hash.as_ref()?)?).clone();
        spec.granted_hash = child.grant.hash.clone().map(String::from).unwrap_or_default();
        spec.watch_sidecar = spec.sidecar.is_some() && self.is_awaited(name);
        spec.claim_sizes = self.claim_sizes_of_new(&spec.volume_claim_templates);
        // From its first moment: no task may be left that asks it, and it would run past the height.
        if spec.sidecar.is_some()
            && let Some((height, task_id)) = self.halt_of(name)
        {
            (spec.halt_height, spec.halt_task_id) = (height, task_id);
        }
        let mut own = self.own_metadata(name);
        if let Some(restart) = &child.restarts.asked {
            own.annotations.insert(ANNOTATION_RESTARTED_AT.to_owned(), restart.to_string());
        }
        let metadata = render::metadata::new_child_metadata(&self.spec.template.metadata, &own);
        let owners =
            if self.owns_by_reference() { json!([owner_reference(&self.fleet.meta)]) } else { json!([]) };
        Some(json!({
            "apiVersion": Kind::StatefulNode.api_version(),
            "kind": Kind::StatefulNode.name(),
            "metadata": {
                "name": name,
                "namespace": self.fleet.meta.namespace,
                "labels": metadata.labels,
                "annotations": metadata.annotations,
                "ownerReferences": owners,
            },
            "spec": spec,
        }))
    }

    /// Deletes a node, if it still exists.
    pub(crate) async fn delete_node(&self, name: &NodeName, why: &str) -> Result<(), ClusterError> {
        let Some(node) = self.view.nodes.get(&Key::new(&self.fleet.meta.namespace, name.as_str())) else {
            return Ok(());
        };
        self.cluster.delete(Target::of(Kind::StatefulNode, &node.meta)).await?;
        let note = format!("deleted node {name}: {why}");
        self.recorder.record(Event::normal(Reason::NodeDeleted, &node.meta.uid, note));
        Ok(())
    }

    /// Removes all nodes of a set together. A node whose claims are kept is deleted only once it no longer owns them.
    /// Returns what one of the nodes waits for, in a sentence.
    pub(crate) async fn remove_set(&self, set: &SetName, why: &str) -> Result<Option<String>, ClusterError> {
        let facts = self.facts();
        let children = if *set == facts.set {
            facts.children.as_slice()
        } else {
            facts.sets.get(set).map(|set| set.children.as_slice()).unwrap_or_default()
        };
        self.let_go(together(children.iter()), why).await
    }

    /// Returns which of these nodes may be deleted, and why one of the others may not, in a sentence.
    pub(super) async fn without_kept(
        &self,
        delete: Vec<NodeName>,
    ) -> Result<(Vec<NodeName>, Option<String>), ClusterError> {
        let (mut free, mut kept) = (Vec::new(), None);
        for looked_at in
            for_each_concurrent(delete, OnFailure::StopUnlessConflict, |name| self.unless_kept(name)).await?
        {
            match looked_at {
                Removable::Now(name) => free.push(name),
                Removable::Kept(why) => {
                    kept.get_or_insert(why);
                }
            }
        }
        Ok((free, kept))
    }

    /// Checks whether a node may be deleted.
    async fn unless_kept(&self, name: NodeName) -> Result<Removable, ClusterError> {
        let node = self.view.nodes.get(&Key::new(&self.fleet.meta.namespace, name.as_str()));
        let kept = match node {
            Some(node) => self.kept_for(&node).await?,
            None => None,
        };
        Ok(kept.map_or(Removable::Now(name), Removable::Kept))
    }

    /// Why a claim that is to be kept might be deleted with a node, in a sentence, if one might.
    async fn kept_for(&self, node: &ObservedNode) -> Result<Option<String>, ClusterError> {
        let name = &node.meta.name;
        let stay = self.spec.template.spec.volume_claim_retention == ClaimRetention::Retain;
        if !stay && !self.keeps_claims(name) {
            return Ok(None);
        }
        let retains = node.spec.as_ref().is_ok_and(|s| s.volume_claim_retention == ClaimRetention::Retain);
        let seen = node.status.observed_generation == node.meta.generation
            && !self.view.has_pending_outcome(Kind::StatefulNode, &node.meta);
        // Garbage collection deletes what a deleted node owns.
        let (uid, namespace) = (&node.meta.uid, &node.meta.namespace);
        let owns = |claim: &str| {
            Some(format!(
                "node {name} is not deleted yet: PersistentVolumeClaim {claim} would be deleted with it"
            ))
        };
        if let Some(claim) = self.view.claims.group(namespace, uid).first() {
            return Ok(owns(&claim.meta.name));
        }
        let set = self.view.stateful_sets.get(&node.meta.key());
        if set.is_some_and(|set| deletes_claims(&set, node)) {
            return Ok(Some(format!(
                "node {name} is not deleted yet: its StatefulSet would delete its claims, because its \
                 persistentVolumeClaimRetentionPolicy is not Retain"
            )));
        }
        if !retains || !seen {
            return Ok(Some(format!(
                "node {name} is not deleted yet: its controller has not observed that its claims are retained"
            )));
        }
        // The watch selects claims by a label, which somebody may have removed, so they are read by name.
        for name in claim_names(node) {
            let live = self.cluster.get(Kind::PersistentVolumeClaim, namespace, &name).await?;
            let Some(live) = live.map(|claim| ObservedClaim::read(&claim)) else { continue };
            // A write whose outcome is unknown may still make the node an owner of the claim.
            if is_deleted_with(&live.meta, &node.meta)
                || self.view.has_pending_outcome(Kind::PersistentVolumeClaim, &live.meta)
            {
                return Ok(owns(&name));
            }
        }
        Ok(None)
    }
}
