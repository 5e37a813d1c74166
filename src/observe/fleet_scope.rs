//! What the tasks of a fleet are handed: how it is observed, and how its nodes are written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::recorder::Recorder;
use super::restart::{effective_restart, later, restart_request};
use crate::api::names::ANNOTATION_OWNER_UID;
use crate::api::{NodeDeploymentSpec, RestartTime, RolloutHash, StatefulNodeSpec};
use crate::cluster::observed::{Meta, ObservedFleet, ObservedNode};
use crate::cluster::{Cluster, Memory, View};
use crate::planner::fleet::report::Invalid;
use crate::planner::fleet::status::rollout_target_of;
use crate::planner::fleet::{FleetFacts, RolloutTarget};
use crate::render::RenderOptions;
use crate::revision::RevisionData;

/// What the tasks of a fleet are handed.
#[derive(Clone)]
pub struct FleetScope {
    /// The fleet as this reconcile sees it.
    pub fleet: Arc<ObservedFleet>,
    /// Its spec.
    pub spec: Arc<NodeDeploymentSpec>,
    /// What is known of the cluster.
    pub view: Arc<View>,
    /// The port to change it.
    pub cluster: Arc<dyn Cluster>,
    /// What this process has learned.
    pub memory: Arc<Memory>,
    /// What an embedding platform adds to pods.
    pub options: Arc<RenderOptions>,
    /// Where the active plan goes.
    pub rollout_target: RolloutTarget,
    /// The latest restart that is obeyed.
    pub restarted_at: Option<RestartTime>,
    /// Why what is wanted cannot be started.
    pub invalid: Option<Invalid>,
    /// The time of this reconcile.
    pub now: DateTime<Utc>,
    /// What was found out in this reconcile and need not be found out again.
    pub cache: Arc<Mutex<ReconcileCache>>,
    /// Where what was done to nodes in this reconcile is recorded.
    pub recorder: Recorder,
}

/// What one reconcile of a fleet has found out.
#[derive(Default)]
pub struct ReconcileCache {
    /// Facts, and at which state of what is known they were put together.
    facts: Option<(State, Arc<FleetFacts>)>,
    /// By rollout hash: a node's spec at that revision. Neither changes in one reconcile.
    specs: HashMap<RolloutHash, Arc<StatefulNodeSpec>>,
    /// How often somebody asked for the facts.
    asked: u32,
    /// How often they were put together.
    taken: u32,
}

/// All that may become another in one reconcile of what the facts rest on. Other fleets are no part of it: what changes
/// there makes nobody look here again, however many nodes they have.
#[derive(Eq, PartialEq)]
struct State {
    /// Changes of the fleet's own nodes, and of who owns which; the same of its revisions.
    nodes: (u64, u64),
    revisions: (u64, u64),
    /// The resourceVersion of the Service of its name.
    service: Option<String>,
    /// How many writes there were whose outcome is not known.
    doubts: u64,
    /// Why what is wanted cannot be started.
    invalid: Option<Invalid>,
}

impl FleetScope {
    /// What the tasks of a fleet are handed, with a status that fits what is seen; `None` where its spec cannot be read.
    #[must_use]
    pub fn of(
        fleet: &Arc<ObservedFleet>,
        view: Arc<View>,
        cluster: Arc<dyn Cluster>,
        memory: Arc<Memory>,
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
            memory,
            options,
            invalid: None,
            now,
            cache: Arc::default(),
            recorder: Recorder::default(),
        };
        Some(scope.repair_status().obeying_from_the_start())
    }

    /// Takes a restart that was asked for before there was any node as obeyed: the first nodes are made with it, and
    /// nothing has to be restarted. So is one that every node was told of, whatever the status says.
    #[must_use]
    pub fn obeying_from_the_start(mut self) -> Self {
        let status = &self.fleet.status;
        let Some(asked) = restart_request(&self.fleet.meta, self.restarted_at.as_ref()) else { return self };
        let nodes = self.children();
        let at_first = status.last_completed_rollout_hash.is_empty() && status.plan.is_none();
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

    /// Whether a node, or the fleet's Service, belongs to this fleet.
    #[must_use]
    pub fn owns(&self, child: &Meta) -> bool {
        let uid = &self.fleet.meta.uid;
        child.is_controlled_by(uid)
            || (child.controller().is_none() && child.annotation(ANNOTATION_OWNER_UID) == Some(uid))
    }

    /// Its nodes as they are known now.
    #[must_use]
    pub fn children(&self) -> Vec<Arc<ObservedNode>> {
        let meta = &self.fleet.meta;
        self.view.nodes.group(&meta.namespace, &meta.uid)
    }

    /// Everything that a decision rests on, as it is known now. It costs as much as the fleet has nodes: it is asked for
    /// once for all of them, never for each.
    #[must_use]
    pub fn facts(&self) -> Arc<FleetFacts> {
        // Read first: a change in the middle makes the next to ask look again.
        let state = self.state();
        let mut cache = self.cache();
        cache.asked += 1;
        if let Some((then, facts)) = &cache.facts
            && *then == state
        {
            return facts.clone();
        }
        let facts = Arc::new(self.observe_facts());
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
            doubts: self.view.doubts_so_far(),
            invalid: self.invalid.clone(),
        }
    }

    fn cache(&self) -> MutexGuard<'_, ReconcileCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the facts were asked for in this reconcile, and how often they were put together.
    #[must_use]
    pub fn looks_so_far(&self) -> (u32, u32) {
        let cache = self.cache();
        (cache.asked, cache.taken)
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

/// A fleet's `metadata` as a JSON value for a child's owner reference.
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
