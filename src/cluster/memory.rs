//! What this process has learned and need not ask again. Nothing here is needed for correctness: a process
//! that starts with an empty memory asks once more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::live_pods::LivePods;
use super::observed::{ObservedFleet, ObservedNode};
use super::{Key, Kind};
use crate::clock::monotonic;

/// How many entries a map may have before it is emptied: a bound, not a limit that is met in practice.
const MAX_ENTRIES: usize = 200_000;

/// A bounded map behind a lock.
pub struct Remembered<K, V> {
    map: Mutex<HashMap<K, V>>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { map: Mutex::new(HashMap::new()) }
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> Remembered<K, V> {
    /// What is remembered under a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.lock().get(key).cloned()
    }

    /// Remembers.
    pub fn put(&self, key: K, value: V) {
        let mut map = self.lock();
        if map.len() >= MAX_ENTRIES {
            map.clear();
        }
        map.insert(key, value);
    }

    /// Forgets; answers with what was remembered.
    pub fn take(&self, key: &K) -> Option<V> {
        self.lock().remove(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was found out about a StatefulSet's template at one generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckedTemplate {
    /// The generation that was looked at.
    pub generation: i64,
    /// The pod template hash that this version renders for it; `None`: it is something else.
    pub hash: Option<String>,
    /// The hash that it was compared with, so that another one is compared again.
    pub compared_with: String,
}

/// What a node's spec renders to, at one generation and under one restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedSpec {
    /// The generation of the spec.
    pub generation: i64,
    /// The restart that is obeyed (RFC 3339); empty for none.
    pub restart: String,
    /// The pod template hash, under every algorithm that is known, the newest first.
    pub hashes: Vec<String>,
    /// The main container's image.
    pub image: String,
}

/// What a fleet reads of the plan of one of its nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadPlan {
    /// Whether it may replace the pod, and is active.
    pub rolling: bool,
    /// The wish that the node leaves, where the plan waits for nothing but that.
    pub awaited_removal: Option<String>,
}

/// Progress of a node's plan that is not yet written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsaved {
    /// Since when there is any.
    pub first: Instant,
    /// Since when the plan waits for what it waits for now.
    pub since: Instant,
    /// What that is, in a sentence.
    pub waits_for: String,
}

/// That a node has no pod although its StatefulSet should make one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoPod {
    /// Since when, on this process's clock.
    pub since: Instant,
    /// Since when, as far as is known; what was told before is of another pod.
    pub noticed: DateTime<Utc>,
    /// When it was last asked what has the pod's name.
    pub asked: Option<Instant>,
    /// What its StatefulSet's events say.
    pub why: Option<String>,
    /// What has the pod's name and is not the node's, in a sentence.
    pub taken: Option<String>,
}

/// Why a set of nodes that is to be made has no name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nameless {
    /// Why, in a sentence.
    pub sentence: String,
    /// When it was last asked which names are taken.
    pub asked: Instant,
    /// Since when that is not answered; `None` where it is.
    pub unanswered_since: Option<Instant>,
}

/// Nodes of a fleet about which nothing was to be done, or said.
pub struct Settled {
    /// The fleet as it was then.
    fleet: Arc<ObservedFleet>,
    /// What else that rests on.
    beside: String,
    /// The nodes as they were then, in the order of where they are in memory. As long as they are held nothing else is there.
    nodes: Vec<Arc<ObservedNode>>,
}

impl Settled {
    /// These nodes, under this fleet.
    #[must_use]
    pub fn new(fleet: Arc<ObservedFleet>, beside: String, mut nodes: Vec<Arc<ObservedNode>>) -> Self {
        nodes.sort_unstable_by_key(Arc::as_ptr);
        Self { fleet, beside, nodes }
    }

    /// Whether nothing that applies at once has become another since, of the fleet or of what is beside it.
    #[must_use]
    pub fn holds(&self, fleet: &ObservedFleet, beside: &str) -> bool {
        let (now, then) = (&fleet.status, &self.fleet.status);
        let same_spec =
            matches!((&fleet.spec, &self.fleet.spec), (Ok(now), Ok(then)) if Arc::ptr_eq(now, then));
        same_spec
            && self.beside == beside
            && now.rollout == then.rollout
            && now.plan == then.plan
            && now.retiring == then.retiring
            && now.deletion_policy == then.deletion_policy
            && now.volume_claim_retention == then.volume_claim_retention
    }

    /// Whether the node was among them, and is what it was.
    #[must_use]
    pub fn has(&self, node: &Arc<ObservedNode>) -> bool {
        self.nodes.binary_search_by_key(&Arc::as_ptr(node), Arc::as_ptr).is_ok()
    }
}

impl Memory {
    /// The key of an object in [`Memory::failures`].
    #[must_use]
    pub fn failure_key(kind: Kind, key: &Key) -> String {
        format!("{} {key}", kind.name())
    }

    /// Whether an object's status was last written no longer ago than this.
    #[must_use]
    pub fn was_saved_within(&self, uid: &str, time: Duration) -> bool {
        self.saved_at.get(&uid.to_owned()).is_some_and(|at| monotonic().duration_since(at) < time)
    }

    /// Whether the last look at an object failed.
    #[must_use]
    pub fn has_failed(&self, kind: Kind, key: &Key) -> bool {
        self.failures.get(&Self::failure_key(kind, key)).is_some()
    }
}

/// What this process has learned.
#[derive(Default)]
pub struct Memory {
    /// By a StatefulSet's UID: what its template was found to be.
    pub templates: Remembered<String, CheckedTemplate>,
    /// By a StatefulSet's UID: the revision that it gave to pods of a template of ours before a write of ours that may have
    /// moved it, and that the node's status may not yet speak of.
    pub revisions: Remembered<String, String>,
    /// By an object's UID and a build ID: the generation, and the rollout hash of what its spec then held.
    pub held: Remembered<(String, String), (i64, String)>,
    /// By a node's UID: the resourceVersion, and what its plan said then.
    pub plans: Remembered<String, (String, ReadPlan)>,
    /// By a node's UID: what its spec was last found to render to.
    pub rendered: Remembered<String, RenderedSpec>,
    /// By rollout hash and restart: the pod template hashes, the newest first, and the main image that it renders to.
    pub renderings: Remembered<(String, String), (Vec<String>, String)>,
    /// By pod template hash and claims: the server's verdict on a dry run, an error is its sentence, and
    /// when it was asked.
    pub verdicts: Remembered<String, (Instant, Result<(), String>)>,
    /// By the UID of a node or fleet, for a revision with its name: when the name of its Service, or of the revision,
    /// was found to belong to something else, and to what.
    pub foreign: Remembered<String, (Instant, String)>,
    /// By a node's UID and a kind: when the name of its StatefulSet or Service was last found to be nobody's.
    pub free: Remembered<(String, Kind), Instant>,
    /// By a node's UID and a claim's name: the node's generation, and when the claim was asked for that no watch shows.
    pub unseen_claims: Remembered<(String, String), (i64, Instant)>,
    /// By a node's UID: that it has no pod, and why.
    pub no_pod: Remembered<String, NoPod>,
    /// By a node's UID: since when its status has something to say that is not yet written.
    pub unsaved_since: Remembered<String, Unsaved>,
    /// By an object's UID: when its status was last written.
    pub saved_at: Remembered<String, Instant>,
    /// By an object's key: how often in a row its reconcile failed.
    pub failures: Remembered<String, u32>,
    /// By a fleet's UID: the nodes that have all that applies at once, while that set serves.
    pub settled: Remembered<String, Arc<Settled>>,
    /// By a fleet's UID: the nodes whose claims are as its spec says, at that state of the claims.
    pub released: Remembered<String, Arc<Settled>>,
    /// By a fleet's UID: what the API server itself last said of its pods.
    pub live_pods: Remembered<String, Arc<LivePods>>,
    /// By a fleet's UID and target: when no name was found for its new set, and why.
    pub nameless: Remembered<(String, String), Nameless>,
    /// By cause: what an event was already due for, and whether it was sent.
    pub told: Remembered<String, bool>,
    /// By a fleet's UID: when as many plans of its nodes may be told of again as may be told of at once.
    pub plans_told: Remembered<String, Instant>,
}
