//! State that all reconciles share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use windlass_clock::{SharedClock, monotonic};
use windlass_engine::Registry;
use windlass_kube_port::follow::Followed;
use windlass_kube_port::{Cluster, EventRecorder, Key, View};

use crate::children::{Children, Compared};
use crate::hooks::Hooks;
use crate::metrics::Metrics;
use crate::observe::Read;
use crate::port::{BuildId, Connections, Pace};
use crate::resources::Resources;
use crate::workers::Workers;

/// The least time between two requests to delete the same record: each makes Temporal re-check the drainage.
const BETWEEN_DELETES: Duration = Duration::from_secs(10);
/// After this many failed requests, another client must be polling as the version: Temporal would no longer list the
/// pollers of Windlass's own workers.
const QUICK_DELETES: u32 = 60;
/// The least time between two requests from then on.
const BETWEEN_LATE_DELETES: Duration = Duration::from_mins(5);
/// The least time between two writes that scale a version to zero while another client scales it up.
const BETWEEN_SCALE_DOWNS: Duration = Duration::from_mins(5);
/// The least time between two counts of the pollers of an idle object.
const BETWEEN_POLLERS: Duration = Duration::from_mins(2);
/// The least time between two counts of a draining version's workflows that are only for display.
const BETWEEN_COUNTS: Duration = Duration::from_secs(25);
/// How long a version that is to be scaled down waits for the deletion of its other objects.
pub(crate) const RESOURCES_PATIENCE: Duration = Duration::from_mins(1);
/// How long the Secrets of workers have to stay unchanged before a change counts: several may be written one after the
/// other, and kubelets have to see them, too.
const SETTLES_IN: Duration = Duration::from_secs(5);
/// The most entries in each cache below; a full one is cleared.
const MOST: usize = 50_000;

/// State that all reconciles share. All of it is cache: correctness does not depend on it.
pub struct Context {
    /// The port to the API server.
    pub cluster: Arc<dyn Cluster>,
    /// The watch caches.
    pub view: Arc<View>,
    /// The event recorder.
    pub events: EventRecorder,
    /// Creates the clients of Temporal.
    pub connections: Arc<dyn Connections>,
    /// The task types.
    pub registry: Registry,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// The rate limits of Temporal.
    pub pace: Arc<Pace>,
    /// The marks of objects that matched their rendering.
    pub compared: Arc<Compared>,
    /// The kinds of `spec.perVersion`.
    pub resources: Resources,
    /// The Secrets of workers.
    pub followed: Arc<Followed>,
    /// Runs hooks; `None`: Windlass rejects objects with hooks.
    pub hooks: Option<Arc<dyn Hooks>>,
    due: Mutex<HashMap<(&'static str, String, BuildId), Instant>>,
    deletes: Mutex<HashMap<(String, BuildId), u32>>,
    reconciles: std::sync::atomic::AtomicU64,
}

impl Context {
    /// Forgets an object that no longer exists.
    pub(crate) fn forget(&self, key: &Key) {
        self.metrics.gone(&key.namespace, &key.name);
        self.followed.follow(key, &[]);
        if let Some(hooks) = &self.hooks {
            hooks.forget(&key.namespace, &key.name);
        }
    }

    /// A context of these parts.
    #[must_use]
    pub fn new(
        cluster: Arc<dyn Cluster>,
        view: Arc<View>,
        events: EventRecorder,
        workers: &Workers,
        pace: Arc<Pace>,
        resources: Resources,
    ) -> Self {
        Self {
            cluster,
            view,
            events,
            connections: workers.connections.clone(),
            registry: Registry::new(),
            clock: workers.clock.clone(),
            metrics: workers.metrics.clone(),
            pace,
            compared: Arc::default(),
            resources,
            followed: Arc::new(Followed::new(workers.client())),
            hooks: workers.hooks.clone(),
            due: Mutex::default(),
            deletes: Mutex::default(),
            reconciles: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The Deployments and revisions of an object.
    pub(crate) fn children(&self, read: &Read) -> Children {
        let (meta, compared) = (read.meta(), self.compared.clone());
        Children::read(self.cluster.clone(), &self.view, &meta.namespace, &meta.name, compared)
    }

    /// True if a record may be deleted now; then false for a while.
    pub(crate) fn may_delete(&self, uid: &str, build: &BuildId) -> bool {
        let mut deletes = self.deletes.lock().unwrap_or_else(PoisonError::into_inner);
        if deletes.len() > MOST {
            deletes.clear();
        }
        let tries = deletes.entry((uid.to_owned(), build.clone())).or_default();
        let between = if *tries < QUICK_DELETES { BETWEEN_DELETES } else { BETWEEN_LATE_DELETES };
        let may = self.is_due(("delete", uid.to_owned(), build.clone()), between);
        *tries = tries.saturating_add(u32::from(may));
        may
    }

    /// How long until this digest of an object's Secrets counts; `None` if it does.
    pub(crate) fn until_settled(&self, uid: &str, digest: &str) -> Option<Duration> {
        let left = self.left_of(("secrets", uid.to_owned(), BuildId::new(digest)), SETTLES_IN);
        Some(left).filter(|left| !left.is_zero())
    }

    /// How long until a record may be deleted.
    pub(crate) fn until_delete(&self, uid: &str, build: &BuildId) -> Duration {
        self.until(&("delete", uid.to_owned(), build.clone()))
    }

    /// Records that a version was scaled to zero.
    pub(crate) fn is_scaled_down(&self, uid: &str, build: &BuildId) {
        self.is_due(("scale-down", uid.to_owned(), build.clone()), BETWEEN_SCALE_DOWNS);
    }

    /// How long until Windlass may again scale to zero a version that another client scaled up.
    pub(crate) fn until_scale_down(&self, uid: &str, build: &BuildId) -> Duration {
        self.until(&("scale-down", uid.to_owned(), build.clone()))
    }

    fn until(&self, what: &(&'static str, String, BuildId)) -> Duration {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let at = due.get(what);
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(monotonic()))
    }

    /// Forgets the requests to delete a record: it no longer exists, and a new one with its name is another record.
    pub(crate) fn is_deleted(&self, uid: &str, build: &BuildId) {
        let key = (uid.to_owned(), build.clone());
        self.deletes.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// True if pollers may be counted now; then false for a while.
    pub(crate) fn pollers_are_due(&self, uid: &str, build: &BuildId) -> bool {
        self.is_due(("pollers", uid.to_owned(), build.clone()), BETWEEN_POLLERS)
    }

    /// True if a version's workflows may be counted for display now; then false for a while.
    pub(crate) fn count_is_due(&self, uid: &str, build: &BuildId) -> bool {
        self.is_due(("count", uid.to_owned(), build.clone()), BETWEEN_COUNTS)
    }

    /// True if a version has waited long enough for the deletion of its other objects. The first call starts the wait.
    pub(crate) fn has_waited_for_resources(&self, uid: &str, build: &BuildId) -> bool {
        self.left_of(("resources", uid.to_owned(), build.clone()), RESOURCES_PATIENCE).is_zero()
    }

    /// Ends that wait: the version is needed again.
    pub(crate) fn end_wait_for_resources(&self, uid: &str, build: &BuildId) {
        let what = ("resources", uid.to_owned(), build.clone());
        self.due.lock().unwrap_or_else(PoisonError::into_inner).remove(&what);
    }

    fn is_due(&self, what: (&'static str, String, BuildId), between: Duration) -> bool {
        let mut due = self.bounded_due();
        let now = monotonic();
        if due.get(&what).is_some_and(|at| now < *at) {
            return false;
        }
        due.insert(what, now + between);
        true
    }

    /// How long a wait still takes. The first call starts it.
    fn left_of(&self, what: (&'static str, String, BuildId), wait: Duration) -> Duration {
        let now = monotonic();
        self.bounded_due().entry(what).or_insert(now + wait).saturating_duration_since(now)
    }

    fn bounded_due(&self) -> MutexGuard<'_, HashMap<(&'static str, String, BuildId), Instant>> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.len() > MOST {
            due.clear();
        }
        due
    }

    /// A number below `bound` that differs from one reconcile to the next.
    pub(crate) fn jitter(&self, uid: &str, bound: u64) -> u64 {
        let number = self.reconciles.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let digest = Sha256::digest(format!("{uid}/{number}"));
        digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) % bound.max(1)
    }
}
