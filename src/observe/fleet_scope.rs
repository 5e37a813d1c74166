//! The scope of a fleet, which its tasks work with: the observed objects, and the port for changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::neighbours::Neighbours;
use super::pods::PodFleet;
use super::restart::{effective_restart, later, restart_request};
use crate::api::names::{ANNOTATION_OWNER_UID, argument_of};
use crate::api::{NodeDeploymentSpec, PodUpdate, RestartTime, RolloutHash, StatefulNodeSpec};
use crate::cache::{Caches, Sightings};
use crate::planner::fleet::drain::Draining;
use crate::planner::fleet::gate::Gate;
use crate::planner::fleet::status::rollout_target_of;
use crate::planner::fleet::{Blocker, FleetFacts, FleetKind, RolloutTarget};
use crate::render::RenderOptions;
use crate::revision::{RevisionData, config};
use windlass_kube_port::EventBuffer;
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedNode};
use windlass_kube_port::{Cluster, Kind, View};

/// What the tasks of a fleet work with. For tasks of other programs: what is decided on ([`FleetScope::facts`]), the fleet
/// as it was observed, and the port for changes. The rest is Windlass's own.
#[derive(Clone)]
pub struct FleetScope {
    /// The fleet, as this reconcile observed it.
    pub fleet: Arc<ObservedFleet>,
    /// The fleet's spec.
    pub spec: Arc<NodeDeploymentSpec>,
    /// The watch caches.
    #[doc(hidden)]
    pub view: Arc<View>,
    /// The port for changes to the cluster.
    pub cluster: Arc<dyn Cluster>,
    /// Answers and results that need not be asked for and computed again.
    pub(crate) caches: Arc<Caches>,
    /// What this process has seen and no object records.
    pub(crate) sightings: Arc<Sightings>,
    /// The other fleets.
    pub(crate) neighbours: Arc<Neighbours>,
    /// What an embedding platform adds to pods.
    pub(crate) options: Arc<RenderOptions>,
    /// The target of the active plan.
    pub(crate) rollout_target: RolloutTarget,
    /// The latest restart that was accepted.
    pub(crate) restarted_at: Option<RestartTime>,
    /// Why the desired state cannot be rolled out, if so.
    #[doc(hidden)]
    pub blocker: Option<Blocker>,
    /// Which objects do not exist although the template of the rollout names them, or that the API server has not answered.
    pub(crate) missing: Option<Blocker>,
    /// The time of this reconcile.
    pub now: DateTime<Utc>,
    /// Results that are cached for the rest of this reconcile.
    pub(crate) cache: Arc<Mutex<ReconcileCache>>,
    /// Records the events about what this reconcile did to nodes.
    pub(crate) recorder: EventBuffer,
    /// The StatefulSets whose pods are its nodes, if it is a StatefulSetRollout.
    pub(crate) pods: Option<Arc<PodFleet>>,
}

/// What one reconcile of a fleet has computed.
#[derive(Default)]
pub struct ReconcileCache {
    /// The facts, and the state of the caches that they were computed from.
    facts: Option<(State, Arc<FleetFacts>)>,
    /// The gate of its rollout, and the obstacle that it was computed with.
    gate: Option<(Option<Gate>, Gate)>,
    /// The spec of a node, by the rollout hash of its revision. It does not change within a reconcile.
    specs: HashMap<RolloutHash, Arc<StatefulNodeSpec>>,
    /// How often the facts were requested.
    asked: u32,
    /// How often the facts were computed.
    taken: u32,
}

/// Everything that facts depend on and that may change within a reconcile. Other fleets are not part of it: their
/// changes do not cause the facts of this one to be computed again, however many nodes they have.
#[derive(PartialEq)]
struct State {
    /// Change counters: of the fleet's own nodes, and of who owns which node. `revisions` has the same for its
    /// revisions.
    nodes: (u64, u64),
    revisions: (u64, u64),
    /// The resourceVersion of the Service with the fleet's name.
    service: Option<String>,
    /// The machines that are being drained.
    draining: Draining,
    /// The number of writes so far whose outcome was unknown.
    doubts: u64,
    /// Why the desired state cannot be rolled out, if so.
    blocker: Option<Blocker>,
    /// The objects that the template names and that do not exist.
    missing: Option<Blocker>,
    /// Of a StatefulSetRollout: the changes of StatefulSets and pods, and the plans of its pods.
    pods: Option<(u64, u64, Vec<PodUpdate>)>,
}

impl FleetScope {
    /// The scope, with the status as it is stored; `None` if the fleet's spec cannot be read.
    #[must_use]
    #[doc(hidden)]
    pub fn of(
        fleet: &Arc<ObservedFleet>,
        view: Arc<View>,
        cluster: Arc<dyn Cluster>,
        caches: Arc<Caches>,
        sightings: Arc<Sightings>,
        options: Arc<RenderOptions>,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let spec = fleet.spec.as_ref().ok()?.clone();
        let scope = Self {
            restarted_at: fleet.status.restarted_at(),
            spec,
            rollout_target: rollout_target_of(&fleet.status),
            fleet: fleet.clone(),
            view,
            cluster,
            caches,
            sightings,
            neighbours: Arc::default(),
            options,
            blocker: None,
            missing: None,
            now,
            cache: Arc::default(),
            recorder: EventBuffer::default(),
            pods: None,
        };
        Some(scope)
    }

    /// The same scope with this digest of the ConfigMaps and Secrets that the template names.
    #[must_use]
    pub(crate) fn with_config(mut self, digest: Option<&str>) -> Self {
        if let Some(changed) = digest.and_then(|digest| config::with_digest(&self.spec, digest)) {
            self.spec = Arc::new(changed);
        }
        self
    }

    /// The same scope beside these other fleets.
    #[must_use]
    pub(crate) fn beside(self, neighbours: Arc<Neighbours>) -> Self {
        Self { neighbours, ..self }
    }

    /// The same scope with a status that fits what is observed.
    #[must_use]
    #[doc(hidden)]
    pub fn repaired(self) -> Self {
        self.repair_status().with_initial_restart()
    }

    /// The same scope of a StatefulSetRollout, as a fleet of these pods.
    #[must_use]
    pub(crate) fn of_pods(self, pods: Arc<PodFleet>) -> Self {
        Self { pods: Some(pods), ..self }.repair_rollout()
    }

    /// The kind of the object.
    #[must_use]
    pub(crate) fn kind(&self) -> Kind {
        if self.pods.is_some() { Kind::StatefulSetRollout } else { Kind::NodeDeployment }
    }

    /// The object as an argument of `windlass` commands.
    #[must_use]
    pub(crate) fn command_argument(&self) -> String {
        let kind = if self.pods.is_some() { FleetKind::Pods } else { FleetKind::Nodes };
        argument_of(kind.short(), &self.fleet.meta.name, &self.fleet.meta.namespace)
    }

    /// Treats a restart that was requested before any node existed as accepted: the first nodes are created with it,
    /// and nothing has to be restarted. The same applies to a restart that every node already has, if the status
    /// records no restart.
    #[must_use]
    pub(crate) fn with_initial_restart(mut self) -> Self {
        let status = &self.fleet.status;
        let Some(asked) = restart_request(&self.fleet.meta, self.restarted_at.as_ref()) else { return self };
        let nodes = self.children();
        let at_first = status.last_completed_rollout_hash.is_empty()
            && status.plan.is_none()
            && status.restarted_at.is_empty();
        let was_told = |node: &Arc<ObservedNode>| {
            let obeyed = effective_restart(node);
            later(obeyed.as_ref(), Some(&asked)) == obeyed.as_ref()
        };
        let told = nodes.iter().all(was_told);
        if told && (at_first || (!nodes.is_empty() && status.restarted_at.is_empty())) {
            self.restarted_at = Some(asked);
        }
        self
    }

    /// True if a node, or the fleet's Service, belongs to this fleet.
    #[must_use]
    #[doc(hidden)]
    pub fn owns(&self, child: &Meta) -> bool {
        let uid = &self.fleet.meta.uid;
        child.is_controlled_by(uid)
            || (child.controller().is_none() && child.annotation(ANNOTATION_OWNER_UID) == Some(uid))
    }

    /// The fleet's nodes, as the cache has them now.
    #[must_use]
    pub fn children(&self) -> Vec<Arc<ObservedNode>> {
        let meta = &self.fleet.meta;
        self.view.nodes.group(&meta.namespace, &meta.uid)
    }

    /// Everything that a decision is based on, as the caches have it now. The cost grows with the number of nodes:
    /// request the facts once for all nodes, never once per node.
    #[must_use]
    pub fn facts(&self) -> Arc<FleetFacts> {
        // Read before the facts: after a change in between, the next call computes them again.
        let state = self.state();
        let mut cache = self.cache();
        cache.asked += 1;
        if let Some((then, facts)) = &cache.facts
            && *then == state
        {
            return facts.clone();
        }
        let mut facts = match &self.pods {
            Some(pods) => self.observe_pods(pods),
            None => self.observe_facts(),
        };
        // Once for each reconcile: a turn is taken for all of it.
        let obstacle = self.obstacle();
        facts.rollout.gate = match &cache.gate {
            Some((then, gate)) if *then == obstacle => gate.clone(),
            _ => self.gate(&facts),
        };
        cache.gate = Some((obstacle, facts.rollout.gate.clone()));
        let facts = Arc::new(facts);
        cache.taken += 1;
        cache.facts = Some((state, facts.clone()));
        facts
    }

    fn state(&self) -> State {
        let meta = &self.fleet.meta;
        State {
            nodes: self.view.nodes.group_changes(&meta.namespace, &meta.uid),
            revisions: self.view.revisions.group_changes(&meta.namespace, &meta.uid),
            service: self.view.services.get(&meta.key()).map(|s| s.meta.resource_version.clone()),
            draining: self.view.draining(),
            doubts: self.view.doubts_so_far(),
            blocker: self.blocker.clone(),
            missing: self.missing.clone(),
            pods: self.pods.as_ref().map(|pods| {
                let (sets, of_pods) = (self.view.stateful_sets.changes(), self.view.pods.changes());
                (sets, of_pods, pods.updates().clone())
            }),
        }
    }

    fn cache(&self) -> MutexGuard<'_, ReconcileCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the facts were requested in this reconcile, and how often they were computed.
    #[cfg(test)]
    pub(crate) fn computations(&self) -> (u32, u32) {
        let cache = self.cache();
        (cache.asked, cache.taken)
    }

    /// Records what keeps a rollout from starting, if nothing of a higher priority does.
    #[doc(hidden)]
    pub fn block(&mut self, found: impl Into<Option<Blocker>>) {
        let known = self.blocker.take();
        self.blocker = known.into_iter().chain(found.into()).min();
    }

    /// The spec of a node of this fleet at a revision.
    #[must_use]
    pub fn node_spec(&self, revision: &RolloutHash) -> Option<Arc<StatefulNodeSpec>> {
        if let Some(spec) = self.cache().specs.get(revision) {
            return Some(spec.clone());
        }
        let stored = self.revisions().remove(revision)?;
        let data = RevisionData::from_value(&stored.data.value()).ok()?;
        let mut spec = data.apply_to(&self.spec.template.spec);
        spec.volume_claim_retention = self.claim_retention();
        let spec = Arc::new(spec);
        self.cache().specs.insert(revision.clone(), spec.clone());
        Some(spec)
    }
}

/// A child's owner reference to a fleet, as JSON.
#[must_use]
pub fn owner_reference(meta: &Meta) -> Value {
    json!({
        "apiVersion": format!("{}/{}", crate::api::names::GROUP, crate::api::names::VERSION),
        "kind": "NodeDeployment",
        "name": meta.name,
        "uid": meta.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
