//! What every reconcile works with: the stores, the ports, and what the operator was configured with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::events::Events;
use super::failures::Failures;
use crate::cache::{Caches, Holds, Sightings, StatusWrites};
use crate::clock::SharedClock;
use crate::engine::{Env, Registry};
use crate::hooks::HookRules;
use crate::metrics::Metrics;
use crate::observe::neighbours::Neighbours;
use crate::observe::node_scope::decided_on;
use crate::observe::pods::PodFleet;
use crate::observe::recorder::SidecarRecorder;
use crate::planner::node::status::SidecarAnswer;
use crate::probe::SidecarProber;
use crate::probe::hooks::HookProber;
use crate::render::RenderOptions;
use crate::sidecar::SidecarClient;
use crate::tasks::hooks::DeletedJobs;
use crate::tasks::{FleetScope, NodeScope};
use crate::traces::Traces;
use windlass_kube_port::follow::Followed;
use windlass_kube_port::observed::{ObservedFleet, ObservedNode};
use windlass_kube_port::{Cluster, Key, View};

/// The dependencies of every reconcile.
#[derive(Clone)]
pub struct Context {
    /// The stores of all watched kinds.
    pub view: Arc<View>,
    /// The port to the API server.
    pub cluster: Arc<dyn Cluster>,
    /// Answers and results that need not be asked for and computed again.
    pub caches: Arc<Caches>,
    /// What this process has seen and no object records.
    pub sightings: Arc<Sightings>,
    /// The ConfigMaps and Secrets that fleets follow.
    pub followed: Arc<Followed>,
    /// All fleets of the operator.
    pub neighbours: Arc<Neighbours>,
    /// When statuses were written.
    pub status_writes: Arc<StatusWrites>,
    /// How often the reconcile of each object has failed in a row.
    pub failures: Arc<Failures>,
    /// How often the hold of a StatefulSet was written again.
    pub holds: Arc<Holds>,
    /// The Jobs of hooks that this process deleted.
    pub deleted_jobs: Arc<DeletedJobs>,
    /// Task types and recipes.
    pub registry: Arc<Registry>,
    /// The values that the embedding program provides to its own task types.
    pub env: Env,
    /// What the embedding program adds to every pod.
    pub options: Arc<RenderOptions>,
    /// The client for sidecars.
    pub sidecars: Arc<dyn SidecarClient>,
    /// Sends requests to sidecars in the background.
    pub prober: Arc<SidecarProber>,
    /// What hooks may do, as configured at start-up.
    pub hook_rules: Arc<HookRules>,
    /// Sends requests to the peers of hooks in the background.
    pub hook_prober: Arc<HookProber>,
    /// The clock.
    pub clock: SharedClock,
    /// The event recorder.
    pub events: Events,
    /// The metrics that count ended plans and tasks.
    pub metrics: Metrics,
    /// Exports ended plans and tasks as spans.
    pub traces: Traces,
}

impl Context {
    /// Removes everything that is kept about the object with this UID.
    pub fn forget(&self, uid: &str) {
        self.caches.forget(uid);
        self.sightings.forget(uid);
        self.status_writes.forget(uid);
        self.deleted_jobs.forget(uid);
    }

    /// The scope that the tasks of a node work with.
    #[must_use]
    pub fn node_scope(&self, key: &Key, node: &ObservedNode, now: DateTime<Utc>) -> NodeScope {
        let has_sidecar = node.spec.as_ref().is_ok_and(|s| s.sidecar.is_some());
        let answer = if has_sidecar { SidecarAnswer::NotAsked } else { SidecarAnswer::NotConfigured };
        NodeScope {
            key: key.clone(),
            decided_on: decided_on(node),
            view: self.view.clone(),
            cluster: self.cluster.clone(),
            caches: self.caches.clone(),
            sightings: self.sightings.clone(),
            status_writes: self.status_writes.clone(),
            options: self.options.clone(),
            sidecars: self.sidecars.clone(),
            prober: self.prober.clone(),
            now,
            answers: SidecarRecorder::new(answer),
        }
    }

    /// The scope that the tasks of a fleet work with; `None` if its spec cannot be read. `config`: the digest of the ConfigMaps and
    /// Secrets that its template names.
    #[must_use]
    pub fn fleet_scope(
        &self,
        fleet: &Arc<ObservedFleet>,
        config: Option<&str>,
        now: DateTime<Utc>,
    ) -> Option<FleetScope> {
        self.scope_of(fleet, now).map(|scope| scope.with_config(config).repaired())
    }

    /// The same for a StatefulSetRollout, as a fleet of these pods.
    #[must_use]
    pub(crate) fn rollout_scope(
        &self,
        fleet: &Arc<ObservedFleet>,
        pods: Arc<PodFleet>,
        now: DateTime<Utc>,
    ) -> Option<FleetScope> {
        self.scope_of(fleet, now).map(|scope| scope.of_pods(pods))
    }

    fn scope_of(&self, fleet: &Arc<ObservedFleet>, now: DateTime<Utc>) -> Option<FleetScope> {
        let (view, cluster, caches) = (self.view.clone(), self.cluster.clone(), self.caches.clone());
        let scope =
            FleetScope::of(fleet, view, cluster, caches, self.sightings.clone(), self.options.clone(), now);
        scope.map(|scope| scope.beside(self.neighbours.clone()))
    }
}
