//! How far `deletionPolicy` and `volumeClaimRetention` are carried out on a fleet's nodes, Service and claims, and
//! which value of each applies until then.

use std::sync::Arc;

use super::FleetScope;
use super::node_scope::{claim_names, deletes_claims, is_deleted_with};
use crate::api::names::ANNOTATION_OWNER_UID;
use crate::api::{ClaimRetention, DeletionPolicy};
use crate::cache::computed::Settled;
use crate::planner::fleet::release::{Carried, Release};
use windlass_kube_port::Kind;
use windlass_kube_port::observed::{DELETES_CLAIMS, Meta, ObservedNode, ObservedStatefulSet};

impl FleetScope {
    /// The deletion policy that is applied to children. After a change from `Retain` to `Delete`, `Retain` applies
    /// until the status no longer reports it: by the time a child is owned again, nobody may still rely on `Retain`.
    #[must_use]
    pub(crate) fn deletion_policy(&self) -> DeletionPolicy {
        match self.fleet.status.deletion_policy {
            Some(DeletionPolicy::Retain) => DeletionPolicy::Retain,
            _ => self.spec.deletion_policy,
        }
    }

    /// The claim retention that is written to nodes, by the same rule.
    #[must_use]
    pub(crate) fn claim_retention(&self) -> ClaimRetention {
        match self.fleet.status.volume_claim_retention {
            Some(ClaimRetention::Retain) => ClaimRetention::Retain,
            _ => self.spec.template.spec.volume_claim_retention,
        }
    }

    /// True if children carry an owner reference to the fleet.
    #[must_use]
    pub(crate) fn owns_by_reference(&self) -> bool {
        self.deletion_policy() == DeletionPolicy::Delete
    }

    /// How far the deletion settings of the spec have been carried out. Objects that are being deleted do not count.
    #[must_use]
    pub(crate) fn release(&self) -> Release {
        let nodes = self.children();
        let stays = || nodes.iter().filter(|node| !node.meta.terminating);
        let service = self.view.services.get(&self.fleet.meta.key());
        let service = service.iter().filter(|s| self.owns(&s.meta) && !s.meta.terminating);
        let of_service = service.map(|s| self.is_released(Kind::Service, &s.meta));
        let of_nodes = stays().map(|node| self.is_released(Kind::StatefulNode, &node.meta));
        Release {
            policy: self.spec.deletion_policy,
            nodes: of_nodes.chain(of_service).max().unwrap_or(Carried::OnAll),
            retention: self.spec.template.spec.volume_claim_retention,
            claims: self.claims_released(&nodes),
        }
    }

    /// How far the claim retention is carried out on the claims of these nodes. A node that was found to be done is
    /// checked again only after the node or any claim has changed: between two reconciles a handful of thousands of
    /// nodes change, and claims hardly ever do.
    fn claims_released(&self, nodes: &[Arc<ObservedNode>]) -> Carried {
        let uid = &self.fleet.meta.uid;
        let beside = self.view.claims.changes().to_string();
        let is_sure = !self.view.has_doubts();
        let known = self
            .caches
            .computed
            .released
            .get(uid)
            .filter(|known| is_sure && known.holds(&self.fleet, &beside));
        let mut carried = if self.claims_go() { Carried::NotOnAll } else { Carried::OnAll };
        let mut settled = Vec::with_capacity(nodes.len());
        for node in nodes.iter().filter(|node| !node.meta.terminating) {
            let is_known = known.as_ref().is_some_and(|known| known.has(node));
            let of_node = if is_known { Carried::OnAll } else { self.are_claims_released(node) };
            if of_node == Carried::OnAll {
                settled.push(node.clone());
            }
            carried = carried.max(of_node);
        }
        if is_sure {
            let settled = Settled::new(self.fleet.clone(), beside, settled);
            self.caches.computed.released.put(uid, Arc::new(settled));
        }
        carried
    }

    /// True if a StatefulSet of the fleet deletes claims that are to stay.
    fn claims_go(&self) -> bool {
        let template = &self.spec.template.spec;
        let retains = template.volume_claim_retention == ClaimRetention::Retain;
        let sets = self.view.stateful_sets.group(&self.fleet.meta.namespace, DELETES_CLAIMS);
        let is_of_fleet = |set: &Arc<ObservedStatefulSet>| {
            let node = self.view.nodes.get(&set.meta.key());
            node.is_some_and(|node| self.owns(&node.meta) && deletes_claims(set, &node))
        };
        retains && sets.iter().any(is_of_fleet)
    }

    fn is_released(&self, kind: Kind, child: &Meta) -> Carried {
        let uid = &self.fleet.meta.uid;
        let owned = child.owners.iter().any(|owner| owner.uid == *uid);
        let marked = child.annotation(ANNOTATION_OWNER_UID) == Some(uid);
        let retains = self.spec.deletion_policy == DeletionPolicy::Retain;
        if owned == retains || marked != retains {
            Carried::NotOnAll
        } else if self.view.has_pending_outcome(kind, child) {
            Carried::NotSeenByAll
        } else {
            Carried::OnAll
        }
    }

    fn are_claims_released(&self, node: &ObservedNode) -> Carried {
        let Ok(spec) = &node.spec else { return Carried::NotSeenByAll };
        let retention = self.spec.template.spec.volume_claim_retention;
        let (retains, namespace) = (retention == ClaimRetention::Retain, &node.meta.namespace);
        // Nodes whose claims are kept whatever the spec says are being removed.
        if !retains && self.keeps_claims(&node.meta.name) {
            return Carried::OnAll;
        }
        let names = claim_names(node).into_iter();
        let claims =
            names.filter_map(|name| self.view.claims.get(&windlass_kube_port::Key::new(namespace, name)));
        let is_owned = |claim: &Meta| claim.owners.iter().any(|owner| owner.uid == node.meta.uid);
        let is_done =
            |claim: &Meta| if retains { !is_deleted_with(claim, &node.meta) } else { is_owned(claim) };
        let mut seen = true;
        for claim in claims.filter(|claim| !claim.meta.terminating) {
            if !is_done(&claim.meta) {
                return Carried::NotOnAll;
            }
            seen &= !self.view.has_pending_outcome(Kind::PersistentVolumeClaim, &claim.meta);
        }
        // If the node's executor never wrote a status, it has not changed a claim either.
        let observed = node.status.observed_generation;
        seen &= (observed == node.meta.generation && !node.status.claims_pending) || observed == 0;
        seen &= !self.view.has_pending_outcome(Kind::StatefulNode, &node.meta);
        match (spec.volume_claim_retention == retention, seen) {
            (false, _) => Carried::NotOnAll,
            (true, false) => Carried::NotSeenByAll,
            (true, true) => Carried::OnAll,
        }
    }
}
