//! The sizes of a fleet's volume claims: the desired ones, and how far its nodes are.

use std::collections::BTreeMap;

use super::FleetScope;
use super::growth::growth_to;
use crate::planner::growth::Growth;
use crate::revision::{growth, is_smaller, sizes_of};
use windlass_kube_port::observed::ObservedNode;

impl FleetScope {
    /// The sizes to which the claims of a node grow, by the names of their templates. A size that a node has stays: a
    /// volume cannot shrink.
    #[must_use]
    pub(crate) fn claim_sizes(&self, node: &ObservedNode) -> BTreeMap<String, String> {
        let Ok(spec) = &node.spec else { return BTreeMap::new() };
        if self.blocker.is_some() {
            return spec.claim_sizes.clone();
        }
        let desired =
            growth(&spec.volume_claim_templates, &sizes_of(&self.spec.template.spec.volume_claim_templates));
        larger(spec.claim_sizes.clone(), desired)
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
        let Ok(spec) = &node.spec else { return Growth::Done };
        let sizes = self.claim_sizes(node);
        if sizes != spec.claim_sizes {
            let grown = growth_to(&sizes, &node.meta.key(), (&self.view, &self.sightings, self.now));
            let why = format!("claims of node {} have to grow", node.meta.name);
            let why = if grown.sentence().is_empty() { why } else { grown.sentence().to_owned() };
            return Growth::Due { why };
        }
        growth_to(&sizes, &node.meta.key(), (&self.view, &self.sightings, self.now))
    }

    /// Why the claims of the fleet's nodes cannot get the desired sizes, in a sentence, if they are larger.
    #[must_use]
    pub(super) fn shrinking_claims(&self, nodes: &[std::sync::Arc<ObservedNode>]) -> Option<String> {
        let desired = sizes_of(&self.spec.template.spec.volume_claim_templates);
        let shrinks = |node: &ObservedNode| {
            let spec = node.spec.as_ref().ok()?;
            let (name, size, wanted) = spec
                .claim_sizes
                .iter()
                .filter_map(|(name, size)| Some((name, size, desired.get(name)?)))
                .find(|(_, size, wanted)| is_smaller(wanted, size))?;
            Some(format!(
                "template.spec.volumeClaimTemplates: claim {name} cannot shrink from {size} to {wanted}, since node {} \
                 has {size} already: set resources.requests.storage to {size} or more, or create a new NodeDeployment",
                node.meta.name
            ))
        };
        nodes.iter().find_map(|node| shrinks(node))
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
