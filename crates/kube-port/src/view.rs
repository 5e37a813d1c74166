//! The watch caches of all kinds. They include our own writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::metrics::SharedMetrics;
use windlass_clock::monotonic;
use windlass_core::api::names::{LABEL_NODE, LABEL_POD_NAME, LABEL_WORKERS};
use windlass_core::planner::fleet::drain::Draining;

use crate::{
    Cache, Key, Kind,
    freshness::Freshness,
    observed::{
        Meta, ObservedBudget, ObservedClaim, ObservedFleet, ObservedMachine, ObservedNode, ObservedObject,
        ObservedPod, ObservedResource, ObservedRevision, ObservedRollout, ObservedService,
        ObservedStatefulSet,
    },
    raw::{RawObject, Sent},
    refusal_store::Refusals,
};

/// How long a write whose answer did not come may still be carried out: the API server gives up after 60 s.
pub const UNKNOWN_OUTCOME_TTL: Duration = Duration::from_secs(75);

/// The caches of every kind that is watched.
#[derive(Default)]
pub struct View {
    /// Fleets.
    pub fleets: Cache<ObservedFleet>,
    /// Nodes.
    pub nodes: Cache<ObservedNode>,
    /// Rollouts of StatefulSets that Windlass did not create.
    pub rollouts: Cache<ObservedRollout>,
    /// StatefulSets that Windlass manages or, in a view of rollouts, all others.
    pub stateful_sets: Cache<ObservedStatefulSet>,
    /// Pods of nodes or, in a view of rollouts, of all other StatefulSets.
    pub pods: Cache<ObservedPod>,
    /// Services that Windlass manages.
    pub services: Cache<ObservedService>,
    /// Volume claims of nodes.
    pub claims: Cache<ObservedClaim>,
    /// Machines. Empty unless drains are carried out.
    pub machines: Cache<ObservedMachine>,
    /// All PodDisruptionBudgets, also those of others.
    pub budgets: Cache<ObservedBudget>,
    /// Revisions of fleets.
    pub revisions: Cache<ObservedRevision>,
    /// `WorkerDeployments`.
    pub workers: Cache<ObservedObject>,
    /// Connections to Temporal of single namespaces. Empty where their kind is not installed.
    pub connections: Cache<ObservedObject>,
    /// Connections to Temporal of several namespaces. Empty where their kind is not installed, or may not be read.
    pub cluster_connections: Cache<ObservedObject>,
    /// Deployments of `WorkerDeployments`.
    pub deployments: Cache<ObservedObject>,
    /// Revisions of `WorkerDeployments`.
    pub worker_revisions: Cache<ObservedObject>,
    /// Objects of the versions of `WorkerDeployments`, by kind.
    resources: Mutex<BTreeMap<Kind, Arc<Cache<ObservedResource>>>>,
    /// How fresh the caches are.
    pub freshness: Freshness,
    /// Why StatefulSets have no pod.
    pub refusals: Refusals,
    news: OnceLock<UnboundedSender<Changed>>,
    metrics: OnceLock<SharedMetrics>,
    doubts: Mutex<Doubts>,
    /// The taints of machines that are being drained; unset if drains are not carried out.
    drain_taints: OnceLock<Vec<String>>,
    /// Set if the labels of machines are read.
    machine_labels: OnceLock<()>,
    /// True if it is about StatefulSets that Windlass did not create.
    is_of_rollouts: bool,
}

/// Writes with an unknown outcome.
#[derive(Default)]
struct Doubts {
    /// By object: the resourceVersion that the write was decided on, and when it was sent.
    open: HashMap<(Kind, Key), (String, Instant)>,
    /// The number of such writes so far.
    count: u64,
}

impl Doubts {
    /// Removes the writes that are not carried out any more.
    fn prune(&mut self) {
        self.open.retain(|_, (_, since)| since.elapsed() < UNKNOWN_OUTCOME_TTL);
    }
}

/// An object that changed according to a response to our own request, and not to a watch.
pub type Changed = (Kind, Meta);

impl View {
    /// Counts the requests of the watches in these metrics.
    pub fn count_requests(&self, metrics: SharedMetrics) {
        // Only the first call has an effect. An operator has one set of metrics.
        let _ = self.metrics.set(metrics);
    }

    /// The metrics that count the requests of the watches, if any.
    pub(crate) fn metrics(&self) -> Option<&SharedMetrics> {
        self.metrics.get()
    }

    /// Carries out drains: a machine that is cordoned, or has one of these taints, is being drained. Without this call
    /// none is.
    pub fn drain(&self, taints: Vec<String>) {
        // Only the first call has an effect. An operator has one set of taints.
        let _ = self.drain_taints.set(taints);
    }

    /// Reads the labels of machines, from which the failure domains of pods follow.
    pub fn read_machine_labels(&self) {
        let _ = self.machine_labels.set(());
    }

    /// True if machines are watched.
    #[must_use]
    pub fn watches_machines(&self) -> bool {
        self.drain_taints.get().is_some() || self.machine_labels.get().is_some()
    }

    /// The machines that are being drained.
    #[must_use]
    pub fn draining(&self) -> Draining {
        let Some(taints) = self.drain_taints.get() else { return Draining::of(std::iter::empty(), &[]) };
        if !self.machines.is_ready() {
            return Draining::Unknown;
        }
        Draining::of(self.machines.list_all(|_| true).iter().map(AsRef::as_ref), taints)
    }

    /// True if the machines are listed, not wanted, or not allowed to be listed.
    fn has_machines(&self) -> bool {
        !self.watches_machines() || self.machines.is_ready() || self.freshness.is_refused(Kind::Node)
    }

    /// True if the first list of every kind is complete. The list of events may also be unavailable.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.is_of_rollouts {
            let is_listed = self.rollouts.is_ready() && self.stateful_sets.is_ready() && self.pods.is_ready();
            return is_listed && self.has_machines();
        }
        self.fleets.is_ready()
            && self.nodes.is_ready()
            && self.stateful_sets.is_ready()
            && self.pods.is_ready()
            && self.services.is_ready()
            && self.claims.is_ready()
            // No decision about nodes depends on budgets: an operator without the right to them works.
            && (self.budgets.is_ready() || self.freshness.is_refused(Kind::PodDisruptionBudget))
            && self.revisions.is_ready()
            && self.refusals.is_settled()
            && self.has_machines()
    }

    /// True if the first list of every kind of `WorkerDeployments` is complete. The kinds of connections may also be
    /// unavailable.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        self.workers.is_ready()
            && self.deployments.is_ready()
            && self.worker_revisions.is_ready()
            && (self.connections.is_ready() || self.freshness.is_refused(Kind::TemporalConnection))
            && (self.cluster_connections.is_ready()
                || self.freshness.is_refused(Kind::ClusterTemporalConnection))
    }

    /// The age of the oldest cache of `WorkerDeployments`. A kind of connections that is unavailable does not count.
    #[must_use]
    pub fn workers_outdated(&self) -> Duration {
        let is_optional = |kind| matches!(kind, Kind::TemporalConnection | Kind::ClusterTemporalConnection);
        let ages = self.freshness.ages().into_iter();
        let ages = ages.filter(|(kind, _)| !is_optional(*kind) || !self.freshness.is_refused(*kind));
        ages.map(|(_, age)| age).max().unwrap_or_default()
    }

    /// The cache of a kind that is known only at run time.
    #[must_use]
    pub fn resources(&self, kind: Kind) -> Arc<Cache<ObservedResource>> {
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        resources.entry(kind).or_default().clone()
    }

    /// An empty view of StatefulSetRollouts, of StatefulSets that Windlass did not create, and of their pods.
    #[must_use]
    pub fn of_rollouts() -> Self {
        Self { is_of_rollouts: true, ..Self::default() }
    }

    /// True if it is a view of StatefulSetRollouts.
    #[must_use]
    pub fn is_of_rollouts(&self) -> bool {
        self.is_of_rollouts
    }

    /// A number that changes with each change of any object, except of machines: their kubelets change them all the time.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.fleets.changes()
            + self.nodes.changes()
            + self.stateful_sets.changes()
            + self.pods.changes()
            + self.services.changes()
            + self.claims.changes()
            + self.budgets.changes()
            + self.revisions.changes()
            + self.rollouts.changes()
            + self.workers.changes()
            + self.connections.changes()
            + self.cluster_connections.changes()
            + self.deployments.changes()
            + self.worker_revisions.changes()
    }

    /// Stores an object from a response, or removes it, if it no longer has the label that pods and claims are watched
    /// by. If that is news, the subscriber is notified now: when the watch shows the same object later, it is not.
    pub fn observe(&self, kind: Kind, object: &Value) {
        self.take_in(kind, object, Meta::read(object));
    }

    /// Like [`Self::observe`], for an object of which only the needed parts are parsed.
    pub fn observe_raw(&self, kind: Kind, object: &RawObject) {
        self.take_in(kind, object, object.seen().clone());
    }

    fn take_in(&self, kind: Kind, object: &impl Sent, meta: Meta) {
        let is_new = match kind {
            // No watch would report that such an object changes or is gone.
            Kind::Pod if !self.watches_pod(&meta) => self.pods.left(&meta),
            Kind::PersistentVolumeClaim if meta.label(LABEL_NODE).is_none() => self.claims.left(&meta),
            Kind::NodeDeployment => self.fleets.take_in(object, &meta),
            Kind::StatefulNode => self.nodes.take_in(object, &meta),
            Kind::StatefulSetRollout => self.rollouts.take_in(object, &meta),
            Kind::StatefulSet => self.stateful_sets.take_in(object, &meta),
            Kind::Pod => self.pods.take_in(object, &meta),
            Kind::Service => self.services.take_in(object, &meta),
            Kind::PersistentVolumeClaim => self.claims.take_in(object, &meta),
            Kind::Node => self.machines.take_in(object, &meta),
            Kind::PodDisruptionBudget => self.budgets.take_in(object, &meta),
            Kind::ControllerRevision if meta.label(LABEL_WORKERS).is_some() => {
                self.worker_revisions.take_in(object, &meta)
            }
            Kind::ControllerRevision => self.revisions.take_in(object, &meta),
            Kind::WorkerDeployment => self.workers.take_in(object, &meta),
            Kind::TemporalConnection => self.connections.take_in(object, &meta),
            Kind::ClusterTemporalConnection => self.cluster_connections.take_in(object, &meta),
            Kind::Deployment => self.deployments.take_in(object, &meta),
            Kind::Dynamic(_) => self.resources(kind).take_in(object, &meta),
            Kind::Event
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::ServiceAccount
            | Kind::PriorityClass
            | Kind::Job => false,
        };
        if let Some(news) = self.news.get().filter(|_| is_new) {
            // The receiver is gone only when the operator stops.
            let _ = news.send((kind, meta));
        }
    }

    /// True if the watch of pods shows this one.
    fn watches_pod(&self, meta: &Meta) -> bool {
        let label = if self.is_of_rollouts { LABEL_POD_NAME } else { LABEL_NODE };
        meta.label(label).is_some()
    }

    /// Records that a write to an object, decided on this resourceVersion, may or may not have been carried out.
    pub fn doubt(&self, kind: Kind, key: Key, version: &str) {
        let mut doubts = self.doubts();
        doubts.count += 1;
        doubts.prune();
        doubts.open.insert((kind, key), (version.to_owned(), monotonic()));
    }

    /// True if a write of ours with an unknown outcome may have changed the object: no other write may be decided on
    /// the cached version. The doubt ends when another version is seen.
    #[must_use]
    pub fn has_pending_outcome(&self, kind: Kind, meta: &Meta) -> bool {
        let doubts = self.doubts();
        if doubts.open.is_empty() {
            return false;
        }
        let open = doubts.open.get(&(kind, meta.key()));
        open.is_some_and(|(version, since)| {
            *version == meta.resource_version && since.elapsed() < UNKNOWN_OUTCOME_TTL
        })
    }

    /// True if any object may be in doubt.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        let mut doubts = self.doubts();
        // A healthy API server causes no more doubts, so nothing else would ever remove the last ones.
        doubts.prune();
        !doubts.open.is_empty()
    }

    /// For how long a write with an unknown outcome may still be carried out; `None` if there is no such write.
    #[must_use]
    pub fn in_doubt_for(&self) -> Option<Duration> {
        let doubts = self.doubts();
        let left = doubts.open.values().map(|(_, since)| UNKNOWN_OUTCOME_TTL.saturating_sub(since.elapsed()));
        left.max().filter(|left| !left.is_zero())
    }

    /// How many writes have ended with an unknown outcome.
    #[must_use]
    pub fn doubts_so_far(&self) -> u64 {
        self.doubts().count
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to changes that do not come from a watch. Only the first subscriber is notified.
    pub fn notify(&self, news: UnboundedSender<Changed>) {
        let _ = self.news.set(news);
    }

    /// Removes an object that our own request has deleted, or has found to be gone.
    pub fn deleted(&self, kind: Kind, key: &Key, uid: &str) {
        match kind {
            Kind::NodeDeployment => self.fleets.deleted(key, uid),
            Kind::StatefulNode => self.nodes.deleted(key, uid),
            Kind::StatefulSetRollout => self.rollouts.deleted(key, uid),
            Kind::StatefulSet => self.stateful_sets.deleted(key, uid),
            Kind::Pod => self.pods.deleted(key, uid),
            Kind::Service => self.services.deleted(key, uid),
            Kind::PersistentVolumeClaim => self.claims.deleted(key, uid),
            Kind::Node => self.machines.deleted(key, uid),
            Kind::PodDisruptionBudget => self.budgets.deleted(key, uid),
            Kind::ControllerRevision => {
                self.revisions.deleted(key, uid);
                self.worker_revisions.deleted(key, uid);
            }
            Kind::WorkerDeployment => self.workers.deleted(key, uid),
            Kind::TemporalConnection => self.connections.deleted(key, uid),
            Kind::ClusterTemporalConnection => self.cluster_connections.deleted(key, uid),
            Kind::Deployment => self.deployments.deleted(key, uid),
            Kind::Dynamic(_) => self.resources(kind).deleted(key, uid),
            Kind::Event
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::ServiceAccount
            | Kind::PriorityClass
            | Kind::Job => {}
        }
    }

    /// Removes an object whose deletion no watch shows, and notifies the subscriber.
    pub fn vanished(&self, kind: Kind, meta: &Meta) {
        self.deleted(kind, &meta.key(), &meta.uid);
        if let Some(news) = self.news.get() {
            let _ = news.send((kind, meta.clone()));
        }
    }

    /// Creates an empty view that can be shared.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }
}
