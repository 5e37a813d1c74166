//! What every reconcile works with: the stores, the ports, and what the operator was configured with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::events::Events;
use crate::clock::SharedClock;
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::cluster::{Cluster, Key, Memory, View};
use crate::engine::{Env, Registry};
use crate::hooks::HookRules;
use crate::metrics::Metrics;
use crate::observe::node_scope::decided_on;
use crate::observe::recorder::SidecarRecorder;
use crate::planner::node::status::SidecarAnswer;
use crate::probe::SidecarProber;
use crate::probe::hooks::HookProber;
use crate::render::RenderOptions;
use crate::sidecar::SidecarClient;
use crate::tasks::{FleetScope, NodeScope};
use crate::traces::Traces;

/// The dependencies of every reconcile.
#[derive(Clone)]
pub struct Context {
    /// The stores of all watched kinds.
    pub view: Arc<View>,
    /// The port to the API server.
    pub cluster: Arc<dyn Cluster>,
    /// What this process has learned and need not ask again.
    pub memory: Arc<Memory>,
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
            memory: self.memory.clone(),
            options: self.options.clone(),
            sidecars: self.sidecars.clone(),
            prober: self.prober.clone(),
            now,
            answers: SidecarRecorder::new(answer),
        }
    }

    /// The scope that the tasks of a fleet work with; `None` if its spec cannot be read.
    #[must_use]
    pub fn fleet_scope(&self, fleet: &Arc<ObservedFleet>, now: DateTime<Utc>) -> Option<FleetScope> {
        let (view, cluster, memory) = (self.view.clone(), self.cluster.clone(), self.memory.clone());
        FleetScope::of(fleet, view, cluster, memory, self.options.clone(), now)
    }
}
