//! Everything that is known of the cluster, as caches that include our own writes.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    Cache, Key, Kind,
    observed::{
        Meta, Observed, ObservedClaim, ObservedFleet, ObservedNode, ObservedPod, ObservedRevision,
        ObservedService, ObservedSet,
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
    news: OnceLock<UnboundedSender<News>>,
}

/// An object that is known better than before, and not from a watch.
pub type News = (Kind, Meta);

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

    /// A number that is another one after each change of anything in here.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.fleets.changes()
            + self.nodes.changes()
            + self.sets.changes()
            + self.pods.changes()
            + self.services.changes()
            + self.claims.changes()
            + self.revisions.changes()
    }

    /// Takes in an object that a write was answered with. What is new in it is told to whoever asked for
    /// news, now: the watch will show the same later, and is then no news any more.
    pub fn observe(&self, kind: Kind, object: &Value) {
        let is_new = match kind {
            Kind::NodeDeployment => self.fleets.observe(Observed::read(object)),
            Kind::StatefulNode => self.nodes.observe(Observed::read(object)),
            Kind::StatefulSet => self.sets.observe(Observed::read(object)),
            Kind::Pod => self.pods.observe(Observed::read(object)),
            Kind::Service => self.services.observe(Observed::read(object)),
            Kind::PersistentVolumeClaim => self.claims.observe(Observed::read(object)),
            Kind::ControllerRevision => self.revisions.observe(Observed::read(object)),
            Kind::Event => false,
        };
        if let Some(news) = self.news.get().filter(|_| is_new) {
            // The receiver is gone only when the operator stops.
            let _ = news.send((kind, Meta::read(object)));
        }
    }

    /// Asks to be told of what did not come from a watch. The first to ask is told.
    pub fn tell_news(&self, news: UnboundedSender<News>) {
        let _ = self.news.set(news);
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
