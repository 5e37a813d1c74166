//! Everything that is known of the cluster, as caches that include our own writes.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Cache, Key, Kind,
    observed::{
        Observed, ObservedClaim, ObservedFleet, ObservedNode, ObservedPod, ObservedRevision, ObservedService,
        ObservedSet,
    },
};

/// The caches of every kind that is watched.
#[derive(Default)]
pub struct View {
    /// Fleets.
    pub fleets: Cache<ObservedFleet>,
    /// Nodes.
    pub nodes: Cache<ObservedNode>,
    /// StatefulSets that Windlass manages.
    pub sets: Cache<ObservedSet>,
    /// Pods of nodes.
    pub pods: Cache<ObservedPod>,
    /// Services that Windlass manages.
    pub services: Cache<ObservedService>,
    /// Volume claims of nodes.
    pub claims: Cache<ObservedClaim>,
    /// Revisions of fleets.
    pub revisions: Cache<ObservedRevision>,
}

impl View {
    /// Whether the first list of every kind is in.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.fleets.is_ready()
            && self.nodes.is_ready()
            && self.sets.is_ready()
            && self.pods.is_ready()
            && self.services.is_ready()
            && self.claims.is_ready()
            && self.revisions.is_ready()
    }

    /// Takes in an object that a write was answered with.
    pub fn observe(&self, kind: Kind, object: &Value) {
        match kind {
            Kind::NodeDeployment => self.fleets.observe(Observed::read(object)),
            Kind::StatefulNode => self.nodes.observe(Observed::read(object)),
            Kind::StatefulSet => self.sets.observe(Observed::read(object)),
            Kind::Pod => self.pods.observe(Observed::read(object)),
            Kind::Service => self.services.observe(Observed::read(object)),
            Kind::PersistentVolumeClaim => self.claims.observe(Observed::read(object)),
            Kind::ControllerRevision => self.revisions.observe(Observed::read(object)),
            Kind::Event => false,
        };
    }

    /// Takes in that our own delete removed an object at once.
    pub fn deleted(&self, kind: Kind, key: &Key, uid: &str) {
        match kind {
            Kind::NodeDeployment => self.fleets.deleted(key, uid),
            Kind::StatefulNode => self.nodes.deleted(key, uid),
            Kind::StatefulSet => self.sets.deleted(key, uid),
            Kind::Pod => self.pods.deleted(key, uid),
            Kind::Service => self.services.deleted(key, uid),
            Kind::PersistentVolumeClaim => self.claims.deleted(key, uid),
            Kind::ControllerRevision => self.revisions.deleted(key, uid),
            Kind::Event => {}
        }
    }

    /// A view that can be shared.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }
}
