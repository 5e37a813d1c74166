//! The sizes of a fleet's volume claims: the desired ones, and how far its nodes are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FleetScope;
use super::growth::growth_to;
use crate::api::StatefulNodeSpec;
use crate::api::names::{claim_name, place_of};
use crate::planner::growth::Growth;
use crate::revision::{RevisionData, are_same_claims, growth, is_smaller, sizes_of};
use windlass_kube_port::Key;
use windlass_kube_port::observed::ObservedNode;

impl FleetScope {
    /// The sizes to which the claims of a node grow, by the names of their templates. While the spec cannot be carried out,
    /// they are what they were.
    #[must_use]
    pub(crate) fn claim_sizes(&self, node: &ObservedNode) -> BTreeMap<String, String> {
        let Ok(spec) = &node.spec else { return BTreeMap::new() };
        if self.blocker.is_some() || spec.suspend {
            return spec.claim_sizes.clone();
        }
        let template = &self.spec.template.spec.volume_claim_templates;
        if spec.claim_sizes.is_empty() && template.is_same(&spec.volume_claim_templates) {
            return BTreeMap::new();
        }
        let desired = sizes_of(template);
        let sizes = growth(&spec.volume_claim_templates, &desired);
        let stays = sizes != spec.claim_sizes && self.is_replaced(&node.meta.name, spec);
        if stays { spec.claim_sizes.clone() } else { sizes }
    }

    /// True if another set of nodes gets the desired claims, or has them, and not this node.
    fn is_replaced(&self, node: &str, spec: &StatefulNodeSpec) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        let stays = self.set_rollout().map_or_else(|| self.recorded_set(), |rollout| rollout.entrant);
        let stored = self.revisions().remove(&self.requested());
        let desired = stored.and_then(|stored| RevisionData::from_value(&stored.data.value()).ok());
        set.is_some_and(|set| set != stays)
            || desired.is_none_or(|desired| {
                !are_same_claims(&desired.volume_claim_templates, &spec.volume_claim_templates)
            })
    }

    /// The sizes to which the claims of a new node grow, which is created with these claim templates: the desired ones or,
    /// if these cannot be carried out, those of the existing nodes.
    #[must_use]
    pub(crate) fn claim_sizes_of_new(&self, claims: &[serde_json::Value]) -> BTreeMap<String, String> {
        let of_nodes = || {
            let children = self.children();
            let sizes = children.iter().filter_map(|node| Some(node.spec.as_ref().ok()?.claim_sizes.clone()));
            sizes.fold(BTreeMap::new(), larger)
        };
        let desired = if self.blocker.is_some() {
            of_nodes()
        } else {
            sizes_of(&self.spec.template.spec.volume_claim_templates)
        };
        growth(claims, &desired)
    }

    /// What is left to do until the claims of a node have the desired sizes.
    pub(super) fn growth(&self, node: &ObservedNode) -> Growth {
        // A node that is suspended waits until it is resumed.
        let Some(spec) = node.spec.as_ref().ok().filter(|spec| !spec.suspend) else { return Growth::Done };
        let sizes = self.claim_sizes(node);
        if sizes != spec.claim_sizes {
            let grown = growth_to(&sizes, &node.meta.key(), (&self.view, &self.sightings, self.now));
            let why = format!("claims of node {} have to grow", node.meta.name);
            let why = if grown.sentence().is_empty() { why } else { grown.sentence().to_owned() };
            return Growth::Due { why };
        }
        growth_to(&sizes, &node.meta.key(), (&self.view, &self.sightings, self.now))
    }

    /// Why the claims of these nodes cannot have the desired sizes, in a sentence: these are smaller than those that the
    /// nodes were created with, or than a volume that has grown. A size that no volume has reached may be taken back.
    #[must_use]
    pub(super) fn shrinking_claims(&self, nodes: &[Arc<ObservedNode>]) -> Option<String> {
        let desired = sizes_of(&self.spec.template.spec.volume_claim_templates);
        let shrinks = |node: &Arc<ObservedNode>| {
            let spec = node.spec.as_ref().ok()?;
            let created = sizes_of(&spec.volume_claim_templates);
            let mut sizes = created.iter().filter_map(|(name, size)| Some((name, desired.get(name)?, size)));
            sizes.find_map(|(name, wanted, created)| {
                let sentence = |what: String, size: &str| {
                    format!(
                        "template.spec.volumeClaimTemplates: claim {name} cannot shrink to {wanted}, since {what}: set \
                         resources.requests.storage to {size} or more, or create a new NodeDeployment"
                    )
                };
                // A claim that somebody else made larger is left alone.
                let taken_back = spec.claim_sizes.get(name).filter(|size| is_smaller(wanted, size));
                let claim = Key::new(&node.meta.namespace, claim_name(name, &node.meta.name));
                let claim = taken_back.and_then(|_| self.view.claims.get(&claim));
                let is_larger = |size: &str| !size.is_empty() && is_smaller(wanted, size);
                if let Some(claim) = claim.filter(|claim| is_larger(&claim.capacity)) {
                    let (name, size) = (&claim.meta.name, &claim.capacity);
                    return Some(sentence(format!("PersistentVolumeClaim {name} has {size} already"), size));
                }
                let node = &node.meta.name;
                is_smaller(wanted, created)
                    .then(|| sentence(format!("node {node} was created with {created}"), created))
            })
        };
        nodes.iter().find_map(shrinks)
    }
}

/// The larger of two sizes for each claim.
fn larger(mut sizes: BTreeMap<String, String>, others: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for (name, size) in others {
        if sizes.get(&name).is_none_or(|known| is_smaller(known, &size)) {
            sizes.insert(name, size);
        }
    }
    sizes
}
