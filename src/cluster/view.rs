//! The watch caches of all kinds. They include our own writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::clock::monotonic;
use crate::metrics::Metrics;

use super::{
    Cache, Key, Kind,
    freshness::Freshness,
    observed::{
        Meta, ObservedClaim, ObservedFleet, ObservedNode, ObservedPod, ObservedRevision, ObservedService,
        ObservedSet,
    },
    raw::{RawObject, Sent},
    refusal_store::Refusals,
};

/// How long a write whose answer did not come may still be carried out: the API server gives up after 60 s.
const DOUBT: Duration = Duration::from_secs(75);

/// The caches of every kind that is watched.
#[derive(Default)]
pub struct View {
    /// Fleets.
    pub fleets: Cache<ObservedFleet>,
    /// Nodes.
    pub nodes: Cache<ObservedNode>,
    /// StatefulSets that Windlass manages.
    pub stateful_sets: Cache<ObservedSet>,
    /// Pods of nodes.
    pub pods: Cache<ObservedPod>,
    /// Services that Windlass manages.
    pub services: Cache<ObservedService>,
    /// Volume claims of nodes.
    pub claims: Cache<ObservedClaim>,
    /// Revisions of fleets.
    pub revisions: Cache<ObservedRevision>,
    /// How old what is known may be.
    pub freshness: Freshness,
    /// Why StatefulSets have no pod.
    pub refusals: Refusals,
    news: OnceLock<UnboundedSender<Changed>>,
    metrics: OnceLock<Metrics>,
    doubts: Mutex<Doubts>,
}

/// Writes whose outcome is not known.
#[derive(Default)]
struct Doubts {
    /// By object: the resourceVersion that the write was decided on, and when it was sent.
    open: HashMap<(Kind, Key), (String, Instant)>,
    /// How many there ever were.
    count: u64,
}

/// An object that is known better than before, and not from a watch.
pub type Changed = (Kind, Meta);

impl View {
    /// Has the requests of its watches counted there.
    pub fn count_requests(&self, metrics: Metrics) {
        // The first counts; an operator has one.
        let _ = self.metrics.set(metrics);
    }

    /// Where the requests of its watches are counted, if anywhere.
    pub(super) fn metrics(&self) -> Option<&Metrics> {
        self.metrics.get()
    }

    /// Whether the first list of every kind is in; that of events, unless it is not to be had.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.fleets.is_ready()
            && self.nodes.is_ready()
            && self.stateful_sets.is_ready()
            && self.pods.is_ready()
            && self.services.is_ready()
            && self.claims.is_ready()
            && self.revisions.is_ready()
            && self.refusals.is_settled()
    }

    /// A number that is another one after each change of anything in here.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.fleets.changes()
            + self.nodes.changes()
            + self.stateful_sets.changes()
            + self.pods.changes()
            + self.services.changes()
            + self.claims.changes()
            + self.revisions.changes()
    }

    /// Takes in an object that a write was answered with. What is new in it is told to whoever asked for
    /// news, now: the watch will show the same later, and is then no news any more.
    pub fn observe(&self, kind: Kind, object: &Value) {
        self.take_in(kind, object, Meta::read(object));
    }

    /// The same of an object of which only what is needed is read.
    pub fn observe_raw(&self, kind: Kind, object: &RawObject) {
        self.take_in(kind, object, object.seen().clone());
    }

    fn take_in(&self, kind: Kind, object: &impl Sent, meta: Meta) {
        let is_new = match kind {
            Kind::NodeDeployment => self.fleets.take_in(object, &meta),
            Kind::StatefulNode => self.nodes.take_in(object, &meta),
            Kind::StatefulSet => self.stateful_sets.take_in(object, &meta),
            Kind::Pod => self.pods.take_in(object, &meta),
            Kind::Service => self.services.take_in(object, &meta),
            Kind::PersistentVolumeClaim => self.claims.take_in(object, &meta),
            Kind::ControllerRevision => self.revisions.take_in(object, &meta),
            Kind::Event | Kind::Secret | Kind::Job | Kind::WorkerDeployment => false,
        };
        if let Some(news) = self.news.get().filter(|_| is_new) {
            // The receiver is gone only when the operator stops.
            let _ = news.send((kind, meta));
        }
    }

    /// Takes in that a write to an object, decided on this resourceVersion, may or may not have been carried out.
    pub fn doubt(&self, kind: Kind, key: Key, version: &str) {
        let mut doubts = self.doubts();
        doubts.count += 1;
        doubts.open.retain(|_, (_, since)| since.elapsed() < DOUBT);
        doubts.open.insert((kind, key), (version.to_owned(), monotonic()));
    }

    /// Whether the object may have been changed by a write of ours that nobody has seen yet: no other may rest on
    /// what is known of it. It ends when another version of it is seen.
    #[must_use]
    pub fn is_in_doubt(&self, kind: Kind, meta: &Meta) -> bool {
        let doubts = self.doubts();
        if doubts.open.is_empty() {
            return false;
        }
        let open = doubts.open.get(&(kind, meta.key()));
        open.is_some_and(|(version, since)| *version == meta.resource_version && since.elapsed() < DOUBT)
    }

    /// Whether there may be any such object.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        !self.doubts().open.is_empty()
    }

    /// How many writes there were whose outcome was not known when they ended.
    #[must_use]
    pub fn doubts_so_far(&self) -> u64 {
        self.doubts().count
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to be told of what did not come from a watch. The first to ask is told.
    pub fn notify(&self, news: UnboundedSender<Changed>) {
        let _ = self.news.set(news);
    }

    /// Takes in that our own delete removed an object at once.
    pub fn deleted(&self, kind: Kind, key: &Key, uid: &str) {
        match kind {
            Kind::NodeDeployment => self.fleets.deleted(key, uid),
            Kind::StatefulNode => self.nodes.deleted(key, uid),
            Kind::StatefulSet => self.stateful_sets.deleted(key, uid),
            Kind::Pod => self.pods.deleted(key, uid),
            Kind::Service => self.services.deleted(key, uid),
            Kind::PersistentVolumeClaim => self.claims.deleted(key, uid),
            Kind::ControllerRevision => self.revisions.deleted(key, uid),
            Kind::Event | Kind::Secret | Kind::Job | Kind::WorkerDeployment => {}
        }
    }

    /// Takes in that an object is gone that no watch shows any more, and tells it as news.
    pub fn vanished(&self, kind: Kind, meta: &Meta) {
        self.deleted(kind, &meta.key(), &meta.uid);
        if let Some(news) = self.news.get() {
            let _ = news.send((kind, meta.clone()));
        }
    }

    /// A view that can be shared.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }
}
