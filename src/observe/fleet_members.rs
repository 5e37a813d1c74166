//! Questions about single nodes of a fleet: what a node is waited for, which of its objects must stay, and which are left.

use std::collections::{BTreeMap, BTreeSet};

use super::FleetScope;
use crate::api::names::{
    ANNOTATION_OWNER_UID, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_SET, MANAGER, place_of,
};
use crate::api::{SetName, Stage, TemplateMeta};
use crate::cluster::Key;
use crate::cluster::observed::Meta;
use crate::planner::fleet::{ChildFacts, Strategy};

impl FleetScope {
    /// Windlass's own labels and annotations of a node.
    #[must_use]
    pub fn own_metadata(&self, node: &str) -> TemplateMeta {
        let meta = &self.fleet.meta;
        let set = place_of(&meta.name, node).map(|(set, _)| set.to_string()).unwrap_or_default();
        let text = str::to_owned;
        let mut annotations = BTreeMap::new();
        if !self.owns_by_reference() {
            annotations.insert(text(ANNOTATION_OWNER_UID), meta.uid.clone());
        }
        TemplateMeta {
            labels: BTreeMap::from([
                (text(LABEL_DEPLOYMENT), meta.name.clone()),
                (text(LABEL_NODE), text(node)),
                (text(LABEL_SET), set),
                (text(LABEL_MANAGED_BY), text(MANAGER)),
            ]),
            annotations,
        }
    }

    /// Why what is wanted cannot be carried out over the nodes that there are, in a sentence, if so: they are updated where
    /// they are, and keep the volume claims that they were made with. Nodes that are made anew may have others.
    #[must_use]
    pub fn unchangeable_claims(&self) -> Option<String> {
        let facts = self.facts();
        if facts.strategy_for(&facts.requested).makes_set() || facts.undecided.is_some() {
            return None;
        }
        let claims = &self.spec.template.spec.volume_claim_templates;
        let meta = &self.fleet.meta;
        let differs = |child: &&ChildFacts| {
            let node = self.view.nodes.get(&Key::new(&meta.namespace, child.name.as_str()));
            let spec = node.as_ref().and_then(|node| node.spec.as_ref().ok());
            child.spec_hash != facts.requested
                && spec.is_some_and(|spec| spec.volume_claim_templates != *claims)
        };
        let child = facts.wanted().filter(|c| !c.terminating).find(differs)?;
        let yet =
            if facts.last_completed.is_none() { ", as all are before anything has completed" } else { "" };
        Some(format!(
            "template.spec.volumeClaimTemplates: node {} was made with other volume claims, and nodes that are updated in \
             place{yet} keep theirs: set volumeClaimTemplates back to what they were, or delete the StatefulNodes with the \
             label windlass.dev/deployment={}, and they are made again with what is wanted (claims that exist stay)",
            child.name, meta.name
        ))
    }

    /// Whether a node is of the set that is to serve and does not yet: what its sidecar says is waited for.
    #[must_use]
    pub fn is_awaited(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout().is_some_and(|r| r.stage != Stage::Retiring && set == r.entrant)
    }

    /// Whether a node is one that a height is waited for on: that it says one at all, then that it halts at one.
    #[must_use]
    pub fn is_halting(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout()
            .is_some_and(|r| r.strategy == Strategy::HardFork && set.is_some() && set == r.incumbent)
    }

    /// Whether a node is of a set whose claims stay although its nodes go.
    #[must_use]
    pub fn keeps_claims(&self, node: &str) -> bool {
        let status = &self.fleet.status;
        let Some((set, _)) = place_of(&self.fleet.meta.name, node) else { return true };
        let goes_first = self.set_rollout().is_some_and(|r| {
            r.strategy == Strategy::BlueGreenImmediate && r.stage == Stage::Promoting && r.incumbent == set
        });
        goes_first || status.retiring.iter().any(|r| set == *r.set && r.keeps_claims())
    }

    /// The pods that still run or shut down although their nodes, of this set, were scaled away and are gone. A pod whose owner
    /// reference somebody removed does not count.
    #[must_use]
    pub fn shutting_down(&self, set: &SetName, replicas: i32) -> Vec<String> {
        let meta = &self.fleet.meta;
        let left = |pod: &Meta| {
            let node = pod.label(LABEL_NODE)?;
            let is_left =
                place_of(&meta.name, node).is_some_and(|(s, ordinal)| s == *set && ordinal >= replicas);
            let key = is_left.then(|| Key::new(&meta.namespace, node))?;
            self.view.nodes.get(&key).is_none().then_some(key)
        };
        let goes = |pod: &Meta| {
            let Some(key) = left(pod) else { return false };
            let of_set = self.view.stateful_sets.get(&key);
            pod.terminating
                || of_set.is_some_and(|set| set.meta.controller().is_some() || set.meta.terminating)
        };
        let pods = self.view.pods.group(&meta.namespace, &meta.name);
        let going = pods.iter().filter(|pod| goes(&pod.meta));
        let names: BTreeSet<String> = going.map(|pod| pod.meta.name.clone()).collect();
        names.into_iter().collect()
    }
}
