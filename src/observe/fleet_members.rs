//! Answers questions about single nodes of a fleet: what the rollout waits for on a node, which of its objects must be
//! kept, and which still exist.

use std::collections::{BTreeMap, BTreeSet};

use super::FleetScope;
use crate::api::names::{
    ANNOTATION_OWNER_UID, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_SET, MANAGER, place_of,
};
use crate::api::{SetName, Stage, TaskType, TemplateMeta};
use crate::planner::fleet::drain::is_moving_any;
use crate::planner::fleet::{ChildFacts, FleetFacts, SetRollout, Strategy};
use crate::planner::waits::{self, Wait};
use crate::revision::ClaimsComparison;
use windlass_kube_port::Key;
use windlass_kube_port::observed::{Meta, ObservedPod};

impl FleetScope {
    /// Windlass's own labels and annotations for a node.
    #[must_use]
    pub(crate) fn own_metadata(&self, node: &str) -> TemplateMeta {
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

    /// Why the desired state cannot be rolled out to the existing nodes, in a sentence, if so: nodes that are updated
    /// in place keep the volume claims that they were created with. Newly created nodes may have other claims.
    #[must_use]
    #[doc(hidden)]
    pub fn unchangeable_claims(&self) -> Option<String> {
        let facts = self.facts();
        if facts.strategy_for(&facts.requested).creates_set() || facts.findings.undecided.is_some() {
            return None;
        }
        // Those of the revision: the spec may have the same ones, written otherwise.
        let revision = self.node_spec(&facts.requested);
        let spec = revision.as_deref().unwrap_or(&self.spec.template.spec);
        let mut wanted = ClaimsComparison::with(&spec.volume_claim_templates);
        let meta = &self.fleet.meta;
        let node = |child: &ChildFacts| self.view.nodes.get(&Key::new(&meta.namespace, child.name.as_str()));
        let nodes: Vec<_> = facts.wanted().filter(|c| !c.terminating).filter_map(node).collect();
        if let Some(sentence) = self.shrinking_claims(&nodes) {
            return Some(sentence);
        }
        let differs = |child: &&ChildFacts| {
            let node = node(child);
            let spec = node.as_ref().and_then(|node| node.spec.as_ref().ok());
            child.spec_hash != facts.requested
                && spec.is_some_and(|spec| wanted.is_other(&spec.volume_claim_templates))
        };
        let child = facts.wanted().filter(|c| !c.terminating).find(differs)?;
        let yet = if facts.record.last_completed.is_none() {
            " or before the first rollout is complete"
        } else {
            ""
        };
        Some(format!(
            "template.spec.volumeClaimTemplates: node {} was created with other volume claims, and nodes that are \
             updated in place{yet} keep their claims: restore the previous volumeClaimTemplates, or create a new \
             NodeDeployment",
            child.name
        ))
    }

    /// True if a node is of the set that will serve and does not serve yet: the rollout waits for what its sidecar
    /// reports.
    #[must_use]
    pub(crate) fn is_awaited(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout().is_some_and(|r| r.stage != Stage::Retiring && set == r.entrant)
    }

    /// True if the roles that sidecars report determine which nodes move next.
    #[must_use]
    pub(crate) fn asks_roles(&self, facts: &FleetFacts) -> bool {
        let is_by_role = self.spec.last().is_some_and(|last| !last.sidecar.is_empty());
        is_by_role && (self.fleet.status.rollout.is_some() || is_moving_any(facts))
    }

    /// True if the rollout waits for a height on this node: first for any height at all, then for the node to halt at
    /// one.
    #[must_use]
    pub(crate) fn is_halting(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout()
            .is_some_and(|r| r.strategy == Strategy::HardFork && set.is_some() && set == r.incumbent)
    }

    /// The height at which a node of the old set has to halt, and the task that asks for that, if the set is halting.
    #[must_use]
    pub(crate) fn halt_of(&self, node: &str) -> Option<(i64, String)> {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        let is_old = |r: &SetRollout| r.is_halting() && set.is_some() && set == r.incumbent;
        let rollout = self.set_rollout().filter(is_old)?;
        let plan = self.fleet.status.plan.as_ref()?.parse().ok()?;
        let task = plan.tasks.iter().find(|task| TaskType::SubmitHalt.is(task))?;
        Some((rollout.halt_height, task.id.clone()))
    }

    /// True if a node is of a set whose volume claims are kept although its nodes are removed.
    #[must_use]
    pub(crate) fn keeps_claims(&self, node: &str) -> bool {
        let status = &self.fleet.status;
        let Some((set, _)) = place_of(&self.fleet.meta.name, node) else { return true };
        let goes_first = self.set_rollout().is_some_and(|r| {
            r.strategy == Strategy::BlueGreenImmediate && r.stage == Stage::Promoting && r.incumbent == set
        });
        goes_first || status.retiring.iter().any(|r| set == *r.set && r.keeps_claims())
    }

    /// The time that pods of the fleet may still take to end whose nodes are gone.
    #[must_use]
    pub(crate) fn ending(&self) -> Option<Wait> {
        let meta = &self.fleet.meta;
        let is_left = |pod: &ObservedPod| {
            pod.node().is_some_and(|node| self.view.nodes.get(&Key::new(&meta.namespace, node)).is_none())
        };
        let pods = self.view.pods.group(&meta.namespace, &meta.name);
        let waits = pods.iter().filter(|pod| pod.meta.terminating && is_left(pod));
        let waits = waits.filter_map(|pod| waits::of_pod(pod, self.now));
        Wait::union(waits.filter(|wait| wait.is_on(self.now)))
    }

    /// The pods that still run or terminate although their nodes, of this set, were removed by scaling down. A pod
    /// counts only if it is terminating or will be: its StatefulSet is terminating, still has an owner, or is gone
    /// before the garbage collector has come to the pod. If a person removed the StatefulSet's owner reference, or
    /// deleted the StatefulSet and left its pod, nothing removes the pod.
    #[must_use]
    pub(crate) fn shutting_down(&self, set: &SetName, replicas: i32) -> Vec<String> {
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
            let owner_goes = || match self.view.stateful_sets.get(&key) {
                Some(set) => set.meta.controller().is_some() || set.meta.terminating,
                None => pod.controller().is_some(),
            };
            pod.terminating || owner_goes()
        };
        let pods = self.view.pods.group(&meta.namespace, &meta.name);
        let going = pods.iter().filter(|pod| goes(&pod.meta));
        let names: BTreeSet<String> = going.map(|pod| pod.meta.name.clone()).collect();
        names.into_iter().collect()
    }
}
