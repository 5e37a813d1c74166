//! The front door: a cluster, its clients, its clock, and the knobs that tests turn.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Duration, Utc};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::admission::policy::Policy;
use super::agenda::Pace;
use super::audit::AuditEntry;
use super::controllers;
use super::faults::{FaultPlan, NoFaults};
use super::kinds::Kind;
use super::random::Random;
use super::refusal::Refusal;
use super::server::WriteOptions;
use super::service::{ApiService, Counters, Latency};
use super::shared::Shared;
use super::world::World;
use windlass_clock::{Clock, SharedClock, monotonic};

/// No clock stands there.
const RUNS: i64 = i64::MIN;

/// A clock that follows tokio's, paused or not, from a fixed date; tests may make it jump or stand still.
#[derive(Debug)]
pub struct ClusterClock {
    epoch: DateTime<Utc>,
    started: Instant,
    offset_micros: AtomicI64,
    /// Where it stands, in microseconds after the epoch; `RUNS` while it does not.
    stopped_at: AtomicI64,
}

impl ClusterClock {
    /// A clock that now shows `epoch`.
    #[must_use]
    pub fn starting_at(epoch: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            started: monotonic(),
            offset_micros: AtomicI64::new(0),
            stopped_at: AtomicI64::new(RUNS),
        })
    }

    /// Makes the clock jump, forward or back.
    pub fn jump(&self, by: Duration) {
        let micros = by.num_microseconds().unwrap_or_default();
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Makes the clock stand still.
    pub fn stop(&self) {
        self.stopped_at.store(self.micros(), Ordering::SeqCst);
    }

    /// Lets a stopped clock run again, from where time has gone meanwhile.
    pub fn go_on(&self) {
        self.stopped_at.store(RUNS, Ordering::SeqCst);
    }

    fn micros(&self) -> i64 {
        let stopped = self.stopped_at.load(Ordering::SeqCst);
        if stopped != RUNS {
            return stopped;
        }
        monotonic().duration_since(self.started).as_micros() as i64
            + self.offset_micros.load(Ordering::SeqCst)
    }
}

impl Clock for ClusterClock {
    fn now(&self) -> DateTime<Utc> {
        self.epoch + Duration::microseconds(self.micros())
    }
}

/// One change of one object, of any kind.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The store's version after it.
    pub version: u64,
    /// What the object was; none: it was created.
    pub before: Option<&'a Value>,
    /// What it became; none: it is gone.
    pub after: Option<&'a Value>,
}

/// How a cluster is made.
pub struct Options {
    /// Everything random in the cluster follows from it.
    pub seed: u64,
    /// The cluster's own clock.
    pub clock: SharedClock,
    /// How quick the controllers are.
    pub pace: Pace,
    /// How long requests take; none: no time at all.
    pub latency: Option<Latency>,
    /// How many changes watches can look back on.
    pub history: usize,
}

impl Options {
    /// A cluster of this seed, at the pace that was measured on a real one.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let epoch = DateTime::from_timestamp(1_767_225_600, 0).unwrap_or_default();
        Self {
            seed,
            clock: ClusterClock::starting_at(epoch),
            pace: Pace::default(),
            latency: Some(Latency(1, 4)),
            history: 20_000,
        }
    }
}

/// A cluster at a moment, without its clients: many can be started from it.
pub struct Image {
    world: World,
    elapsed: std::time::Duration,
    now: DateTime<Utc>,
    latency: Option<Latency>,
    random: Random,
}

impl Image {
    /// The time of day at which it was made.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }
}

/// A simulated cluster. Its controllers run as one task, which ends with it.
pub struct Cluster {
    shared: Arc<Shared>,
    counters: Arc<Mutex<Counters>>,
    latency: Option<Latency>,
    random: Arc<Mutex<Random>>,
    clock: SharedClock,
    controllers: JoinHandle<()>,
}

impl Cluster {
    /// Starts a cluster with the namespaces `default` and `kube-system`, and a storage class. Must be called
    /// within a tokio runtime. For determinism that is a current-thread one, with its time paused.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let mut seeds = Random::new(options.seed);
        let world = World::new(seeds.next_u64(), options.clock.clone(), options.pace, options.history);
        let shared = Shared::new(world, std::time::Duration::ZERO, Box::new(NoFaults));
        {
            let mut world = shared.lock();
            for name in ["default", "kube-system"] {
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                seed_object(&mut world, "Namespace", body);
            }
            seed_object(
                &mut world,
                "StorageClass",
                json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "windlass.dev/played",
                    "metadata": {"name": "standard",
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                }),
            );
        }
        Self {
            controllers: tokio::spawn(controllers::run(shared.clone())),
            shared,
            counters: Arc::default(),
            latency: options.latency,
            random: Arc::new(Mutex::new(Random::new(seeds.next_u64()))),
            clock: options.clock,
        }
    }

    /// What the cluster is now: a start for others, once it has come to rest. What is under way is not in it, nor are the
    /// requests that made it.
    #[must_use]
    pub fn image(&self) -> Image {
        let mut world = self.shared.lock().clone();
        world.store = world.store.unwatched();
        world.audit.clear();
        Image {
            world,
            elapsed: self.shared.elapsed(),
            now: self.clock.now(),
            latency: self.latency,
            random: self.random.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Starts a cluster that goes on from an image, at the time of day at which that was made.
    #[must_use]
    pub fn resume(image: &Image) -> Self {
        let mut world = image.world.clone();
        let clock: SharedClock = ClusterClock::starting_at(image.now);
        world.clock = clock.clone();
        let shared = Shared::new(world, image.elapsed, Box::new(NoFaults));
        Self {
            controllers: tokio::spawn(controllers::run(shared.clone())),
            shared,
            counters: Arc::default(),
            latency: image.latency,
            random: Arc::new(Mutex::new(image.random.clone())),
            clock,
        }
    }

    /// A client of the cluster that names itself so in the audit log.
    #[must_use]
    pub fn client(&self, user_agent: &str, namespace: &str) -> kube::Client {
        kube::Client::new(self.service(user_agent), namespace)
    }

    /// What such a client is built on, for those that put something of their own between.
    #[must_use]
    pub fn service(&self, user_agent: &str) -> ApiService {
        ApiService {
            shared: self.shared.clone(),
            user_agent: user_agent.into(),
            counters: self.counters.clone(),
            latency: self.latency,
            random: self.random.clone(),
        }
    }

    /// The cluster's clock.
    #[must_use]
    pub fn clock(&self) -> SharedClock {
        self.clock.clone()
    }

    /// Stores a definition, or any other object, without a request: what the cluster is to begin with.
    pub fn install(&self, object: Value) -> Result<(), Refusal> {
        let mut world = self.shared.lock();
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let name = object["kind"].as_str().unwrap_or_default().to_owned();
        let kind = world.kinds.by_kind(&version, &name).cloned().ok_or_else(Refusal::no_such_path)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        world.create(&kind, &namespace, object, &WriteOptions::default())?;
        drop(world);
        self.shared.stir.notify_one();
        Ok(())
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, plan: Box<dyn FaultPlan>) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Sets how quick the controllers are from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.lock().agenda.pace = pace;
    }

    /// Installs a policy of the platform: it applies to what is written from now on.
    pub fn admit(&self, policy: Policy) {
        let mut world = self.shared.lock();
        world.policies.retain(|there| there.name != policy.name);
        world.policies.push(policy);
    }

    /// Takes a policy of the platform away; what it did stays.
    pub fn withdraw(&self, policy: &str) {
        self.shared.lock().policies.retain(|there| there.name != policy);
    }

    /// From now on the StatefulSet controller writes revisions down with other bytes than before, and looks at every
    /// set anew: what an upgrade of Kubernetes did from 1.33 to 1.34, which asked for bytes only. Every set's revision is
    /// another one then, under the same template.
    pub fn reserialise_revisions(&self) {
        self.shared.lock().reserialise_revisions();
        self.shared.stir.notify_one();
    }

    /// Holds the StatefulSet controller up, or lets it go on.
    pub fn hold_stateful_sets(&self, held: bool) {
        self.shared.lock().agenda.held = held;
        self.shared.stir.notify_one();
    }

    /// Whether the garbage collector has yet to look at something.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.shared.lock().agenda.is_collecting()
    }

    /// Forgets the history so far: open watches and pages that are behind get 410.
    pub fn compact(&self) {
        let mut world = self.shared.lock();
        let version = world.store.version();
        world.store.compact(version);
        world.store.wake_all();
    }

    /// The requests so far.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.shared.lock().audit.clone()
    }

    /// The requests after the first so many.
    #[must_use]
    pub fn audit_after(&self, entries: usize) -> Vec<AuditEntry> {
        self.shared.lock().audit.get(entries..).map(<[AuditEntry]>::to_vec).unwrap_or_default()
    }

    /// How many requests there were.
    #[must_use]
    pub fn audit_len(&self) -> usize {
        self.shared.lock().audit.len()
    }

    /// The requests so far, which the cluster forgets.
    #[must_use]
    pub fn take_audit(&self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.shared.lock().audit)
    }

    /// Forgets the requests so far.
    pub fn clear_audit(&self) {
        self.shared.lock().audit.clear();
    }

    /// The store's version: it moves with every change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.lock().store.version()
    }

    /// How many watches are open.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.shared.lock().store.watcher_count()
    }

    /// An object as it is stored now.
    #[must_use]
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let world = self.shared.lock();
        let kind = world.kinds.by_kind(api_version, kind)?;
        let key = (namespace.to_owned(), name.to_owned());
        world.store.get(kind.shelf, &key).map(|object| object.value.clone())
    }

    /// Shows every change after a version that is still remembered, oldest first: what it made of which object.
    /// Answers whether none of them was forgotten.
    pub fn replay(&self, after: u64, mut show: impl FnMut(Step<'_>)) -> bool {
        let world = self.shared.lock();
        for change in world.store.since(after) {
            show(Step {
                version: change.version,
                before: change.before.as_ref().map(|object| &object.value),
                after: change.after.as_ref().map(|object| &object.value),
            });
        }
        after >= world.store.compacted()
    }

    /// Every object there is, by kind, namespace and name: for comparing two runs.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Value> {
        self.objects("", |_| true)
    }

    /// The objects of these kinds in a namespace, by kind and name.
    #[must_use]
    pub fn snapshot_of(&self, namespace: &str, kinds: &[&str]) -> Vec<Value> {
        self.objects(namespace, |kind| kind.namespaced && kinds.contains(&kind.kind.as_str()))
    }

    fn objects(&self, namespace: &str, wanted: impl Fn(&Kind) -> bool) -> Vec<Value> {
        let world = self.shared.lock();
        let mut objects = Vec::new();
        let mut shelves = std::collections::BTreeSet::new();
        for kind in world.kinds.all().filter(|kind| wanted(kind)) {
            if shelves.insert(kind.shelf) {
                objects
                    .extend(world.store.list(kind.shelf, namespace).map(|(_, object)| object.value.clone()));
            }
        }
        objects
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

fn seed_object(world: &mut World, kind: &str, body: Value) {
    if let Some(kind) = world.kind(kind) {
        // These bodies are ours and valid; a refusal would show in the first test.
        let _ = world.create(&kind, "", body, &WriteOptions::default());
    }
}
