//! What every reconcile works with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::events::Events;
use crate::asking::Askers;
use crate::asking::hooks::HookAskers;
use crate::clock::SharedClock;
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::cluster::{Cluster, Key, Memory, View};
use crate::engine::{Env, Registry};
use crate::hooks::HookRules;
use crate::metrics::Metrics;
use crate::observe::node_scope::decided_on;
use crate::observe::recorder::SidecarRecorder;
use crate::planner::node::status::SidecarAnswer;
use crate::render::RenderOptions;
use crate::sidecar::SidecarClient;
use crate::tasks::{FleetScope, NodeScope};
use crate::traces::Traces;

/// What every reconcile works with.
#[derive(Clone)]
pub struct Context {
    /// What is known of the cluster.
    pub view: Arc<View>,
    /// The port to change it.
    pub cluster: Arc<dyn Cluster>,
    /// What this process has learned.
    pub memory: Arc<Memory>,
    /// Task types and recipes.
    pub registry: Arc<Registry>,
    /// What users' own tasks were given.
    pub env: Env,
    /// What an embedding platform adds to pods.
    pub options: Arc<RenderOptions>,
    /// The way to sidecars.
    pub sidecars: Arc<dyn SidecarClient>,
    /// Those who ask them beside the reconciles.
    pub askers: Arc<Askers>,
    /// What the operator was told of hooks when it was started.
    pub hook_rules: Arc<HookRules>,
    /// Those who ask the peers of hooks beside the reconciles.
    pub hook_askers: Arc<HookAskers>,
    /// The time.
    pub clock: SharedClock,
    /// Where events go.
    pub events: Events,
    /// Where it is counted what ended.
    pub metrics: Metrics,
    /// Where it is told what ended, with its time.
    pub traces: Traces,
}

impl Context {
    /// What the tasks of a node are handed.
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
            askers: self.askers.clone(),
            now,
            answers: SidecarRecorder::new(answer),
        }
    }

    /// What the tasks of a fleet are handed; `None` where its spec cannot be read.
    #[must_use]
    pub fn fleet_scope(&self, fleet: &Arc<ObservedFleet>, now: DateTime<Utc>) -> Option<FleetScope> {
        let (view, cluster, memory) = (self.view.clone(), self.cluster.clone(), self.memory.clone());
        FleetScope::of(fleet, view, cluster, memory, self.options.clone(), now)
    }
}
