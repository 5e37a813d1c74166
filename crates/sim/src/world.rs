//! The state of a simulated cluster. Requests and controllers change it with the same verbs, in `server/`; each
//! change queues the follow-up work of the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::admission::policy::Policy;
use super::agenda::{Agenda, Pace};
use super::audit::AuditEntry;
use super::kinds::{Kind, Kinds};
use super::random::Random;
use super::server::WriteOptions;
use super::store::{Key, Object, Store};
use windlass_clock::SharedClock;

/// The state of a cluster.
#[derive(Clone)]
pub(crate) struct World {
    pub kinds: Kinds,
    pub store: Store,
    pub clock: SharedClock,
    pub random: Random,
    pub agenda: Agenda,
    pub audit: Vec<AuditEntry>,
    /// The last applied configuration, by UID and field manager.
    pub applied: BTreeMap<(String, String), Value>,
    /// The StatefulSet controller's cache of sets, with newer versions that have not arrived yet.
    pub seen_sets: BTreeMap<Key, SeenSet>,
    /// The pods that could not be scheduled.
    pub unplaced: BTreeSet<Key>,
    /// The unscheduled pods that use a claim, by the claim.
    pub awaited: BTreeMap<Key, BTreeSet<Key>>,
    /// The requests of a node's pods, in thousandths: CPUs, and bytes.
    pub requested_by_node: BTreeMap<String, [i128; 2]>,
    /// The names of pods with a label, by namespace, label and value.
    pub labelled: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// The names of Services whose selector starts with a label, by namespace, label and value.
    pub selecting: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// The number of consecutive failed syncs of a set.
    pub failures: BTreeMap<Key, u32>,
    /// The next virtual address of a Service.
    pub next_address: u32,
    /// The admission policies, in order.
    pub policies: Vec<Policy>,
    /// The version of the StatefulSet controller's serialization of revisions. From 1 on it is a controller that
    /// compares bytes only, as before 1.36.
    pub serialisation: u32,
}

/// A set in the controller's cache: the cached version, and newer ones with their times of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenSet {
    pub seen: Option<Arc<Object>>,
    pub arriving: Vec<(u64, Option<Arc<Object>>)>,
}

impl World {
    pub(crate) fn new(seed: u64, clock: SharedClock, pace: Pace, history_limit: usize) -> Self {
        let mut random = Random::new(seed);
        let schedule = Random::new(random.next_u64());
        Self {
            kinds: Kinds::builtin(),
            store: Store::new(history_limit),
            clock,
            random,
            agenda: Agenda::new(pace, schedule),
            audit: Vec::new(),
            applied: BTreeMap::new(),
            seen_sets: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            awaited: BTreeMap::new(),
            requested_by_node: BTreeMap::new(),
            labelled: BTreeMap::new(),
            selecting: BTreeMap::new(),
            failures: BTreeMap::new(),
            next_address: 1,
            policies: Vec::new(),
            serialisation: 0,
        }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The time as in metadata, in whole seconds.
    pub(crate) fn timestamp(&self) -> Value {
        self.now().to_rfc3339_opts(SecondsFormat::Secs, true).into()
    }

    /// A built-in kind.
    pub(crate) fn kind(&self, name: &str) -> Option<Arc<Kind>> {
        self.kinds.builtin_kind(name)
    }

    /// An object of a built-in kind.
    pub(crate) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let kind = self.kind(kind)?;
        self.store.get(kind.shelf, &(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Stores an object and queues the follow-up work.
    pub(crate) fn put(&mut self, kind: &Kind, key: Key, value: Value) -> Arc<Object> {
        let change = self.store.put(kind.shelf, key, value);
        let shown = change.shown.clone();
        self.follow(kind, &change);
        shown
    }

    /// Removes an object and queues the follow-up work.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        let change = self.store.remove(kind.shelf, key)?;
        self.applied.retain(|(uid, _), _| uid != change.shown.uid());
        let shown = change.shown.clone();
        self.follow(kind, &change);
        Some(shown)
    }

    /// Records an event of a controller about an object.
    pub(crate) fn record_event(&mut self, about: &Value, reason: &str, message: &str) {
        let Some(kind) = self.kinds.by_path("", "v1", "events").cloned() else { return };
        let metadata = &about["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default").to_owned();
        let name =
            format!("{}.{:016x}", metadata["name"].as_str().unwrap_or_default(), self.random.next_u64());
        let now = self.timestamp();
        let component = if about["kind"] == "Job" { "job-controller" } else { "statefulset-controller" };
        let body = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"], "kind": about["kind"], "name": metadata["name"],
                "namespace": namespace, "uid": metadata["uid"],
            },
            "reason": reason, "message": message, "type": "Warning", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": component},
        });
        // A failure, as in a terminating namespace, only loses the event.
        let _ = self.create(&kind, &namespace, body, &WriteOptions::default());
    }
}
