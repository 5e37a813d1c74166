//! What every look shares.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use windlass_clock::{SharedClock, monotonic};
use windlass_engine::Registry;

use crate::children::Compared;
use crate::events::Event;
use crate::hooks::Hooks;
use crate::metrics::Metrics;
use crate::port::{BuildId, Connections, Pace};

/// A version's record is not asked to be deleted oftener: Temporal looks at its drainage each time.
const BETWEEN_DELETES: Duration = Duration::from_secs(10);
/// After so many tries in vain it is somebody else who polls as that version, and not Temporal's memory of our own workers.
const QUICK_DELETES: u32 = 60;
/// Then it is asked for so often.
const BETWEEN_LATE_DELETES: Duration = Duration::from_mins(5);
/// The pollers of what is at rest are not asked for oftener.
const BETWEEN_POLLERS: Duration = Duration::from_mins(2);
/// What runs on a version that drains is not counted oftener, where it is counted for people only.
const BETWEEN_COUNTS: Duration = Duration::from_secs(25);
/// How much is remembered at most; then all is forgotten, and asked once more.
const MOST: usize = 50_000;

/// What every look shares. Nothing in its memory is needed for correctness.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The ways to Temporal.
    pub connections: Arc<dyn Connections>,
    /// The task types.
    pub registry: Registry,
    /// The time.
    pub clock: SharedClock,
    /// What is counted.
    pub metrics: Metrics,
    /// Whose turn it is to ask Temporal.
    pub pace: Arc<Pace>,
    /// What Deployments were compared.
    pub compared: Arc<Compared>,
    /// Who carries hooks out, where somebody does.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// The name of this replica, for events.
    pub instance: String,
    due: Mutex<HashMap<(&'static str, String, BuildId), Instant>>,
    deletes: Mutex<HashMap<(String, BuildId), u32>>,
    told: Mutex<HashSet<(String, &'static str, String)>>,
    looks: std::sync::atomic::AtomicU64,
}

impl Context {
    /// Forgets what is known of an object that is not there any more.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.metrics.gone(namespace, name);
        if let Some(hooks) = &self.hooks {
            hooks.forget(namespace, name);
        }
    }

    /// A context of these parts.
    #[must_use]
    pub fn new(
        client: Client,
        connections: Arc<dyn Connections>,
        clock: SharedClock,
        metrics: Metrics,
        instance: &str,
    ) -> Self {
        Self {
            client,
            connections,
            registry: Registry::new(),
            clock,
            metrics,
            pace: Arc::default(),
            compared: Arc::default(),
            hooks: None,
            instance: instance.to_owned(),
            due: Mutex::default(),
            deletes: Mutex::default(),
            told: Mutex::default(),
            looks: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Has hooks carried out by these.
    #[must_use]
    pub fn with_hooks(mut self, hooks: Option<Arc<dyn Hooks>>) -> Self {
        self.hooks = hooks;
        self
    }

    /// Whether a record may be asked to be deleted; then not again for a while.
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

    /// How long it is until a record may be asked to be deleted.
    pub(crate) fn until_delete(&self, uid: &str, build: &BuildId) -> Duration {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let at = due.get(&("delete", uid.to_owned(), build.clone()));
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(monotonic()))
    }

    /// Forgets how often a record was asked to be deleted: it is gone, and another of its name is another.
    pub(crate) fn is_deleted(&self, uid: &str, build: &BuildId) {
        let key = (uid.to_owned(), build.clone());
        self.deletes.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Whether pollers are asked for; then not again for a while.
    pub(crate) fn pollers_are_due(&self, uid: &str, build: &BuildId) -> bool {
        self.is_due(("pollers", uid.to_owned(), build.clone()), BETWEEN_POLLERS)
    }

    /// Whether what runs on a version is counted for people; then not again for a while.
    pub(crate) fn count_is_due(&self, uid: &str, build: &BuildId) -> bool {
        self.is_due(("count", uid.to_owned(), build.clone()), BETWEEN_COUNTS)
    }

    fn is_due(&self, what: (&'static str, String, BuildId), between: Duration) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        if due.get(&what).is_some_and(|at| now < *at) {
            return false;
        }
        if due.len() > MOST {
            due.clear();
        }
        due.insert(what, now + between);
        true
    }

    /// Whether something has not been told yet by this process.
    pub(crate) fn is_news(&self, uid: &str, news: &Event) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > MOST {
            told.clear();
        }
        told.insert((uid.to_owned(), news.reason, news.cause.clone()))
    }

    /// A number below a bound that differs from look to look.
    pub(crate) fn jitter(&self, uid: &str, bound: u64) -> u64 {
        let turn = self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let digest = Sha256::digest(format!("{uid}/{turn}"));
        digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) % bound.max(1)
    }
}
