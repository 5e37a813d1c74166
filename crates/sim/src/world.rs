//! The whole state of a simulated cluster. Requests and controllers change it through the same verbs, which
//! live in `server/`; what each change sets going is noted in the agenda.

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

/// Everything there is in a cluster.
#[derive(Clone)]
pub(crate) struct World {
    pub kinds: Kinds,
    pub store: Store,
    pub clock: SharedClock,
    pub random: Random,
    pub agenda: Agenda,
    pub audit: Vec<AuditEntry>,
    /// What each manager last applied to an object, by UID and manager.
    pub applied: BTreeMap<(String, String), Value>,
    /// What the StatefulSet controller has seen of each set, and when it sees what is newer.
    pub seen_sets: BTreeMap<Key, SeenSet>,
    /// The pods for which no node was found.
    pub unplaced: BTreeSet<Key>,
    /// Which of these name a claim, by the claim.
    pub awaited: BTreeMap<Key, BTreeSet<Key>>,
    /// What the pods of a node ask for, in thousandths: of its CPUs, and of its bytes.
    pub asked_of: BTreeMap<String, [i128; 2]>,
    /// The pods that carry a label, by namespace, label and value.
    pub labelled: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// The services that select a label, by namespace, label and value: the first of their selector.
    pub selecting: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// How often the sync of a set has failed in a row.
    pub failures: BTreeMap<Key, u32>,
    /// The next virtual address of a Service.
    pub next_address: u32,
    /// What the platform does to what is written, in this order.
    pub policies: Vec<Policy>,
    /// How the StatefulSet controller writes revisions down: with the bytes of which version of itself. From 1 on it is one
    /// that asks for bytes only, as they did before 1.36.
    pub serialisation: u32,
}

/// A set as its controller's cache has it: the version seen, and newer ones with the time at which they arrive.
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
            asked_of: BTreeMap::new(),
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

    /// The time as metadata holds it, in whole seconds.
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

    /// Stores an object and notes what that sets going.
    pub(crate) fn put(&mut self, kind: &Kind, key: Key, value: Value) -> Arc<Object> {
        let change = self.store.put(kind.shelf, key, value);
        let shown = change.shown.clone();
        self.follow(kind, &change);
        shown
    }

    /// Removes an object for good and notes what that sets going.
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
        // An event that cannot be stored, in a namespace that is going away, is not worth more than silence.
        let _ = self.create(&kind, &namespace, body, &WriteOptions::default());
    }
}
