//! The entry point: a cluster, its clients, its clock, and the settings for tests.

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

/// The value of `stopped_at` while the clock runs.
const RUNS: i64 = i64::MIN;

/// A clock that follows tokio's, paused or not, from a fixed date; tests may make it jump or stop.
#[derive(Debug)]
pub struct ClusterClock {
    epoch: DateTime<Utc>,
    started: Instant,
    offset_micros: AtomicI64,
    /// The time at which it stopped, in microseconds since the epoch; `RUNS` otherwise.
    stopped_at: AtomicI64,
}

impl ClusterClock {
    /// A clock that starts at `epoch`.
    #[must_use]
    pub fn starting_at(epoch: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            started: monotonic(),
            offset_micros: AtomicI64::new(0),
            stopped_at: AtomicI64::new(RUNS),
        })
    }

    /// Makes the clock jump forward or back.
    pub fn jump(&self, by: Duration) {
        let micros = by.num_microseconds().unwrap_or_default();
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Stops the clock.
    pub fn stop(&self) {
        self.stopped_at.store(self.micros(), Ordering::SeqCst);
    }

    /// Resumes a stopped clock at the time it would have reached.
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

/// A change of an object of any kind.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The store's version after the change.
    pub version: u64,
    /// The object before; `None`: it was created.
    pub before: Option<&'a Value>,
    /// The object after; `None`: it was deleted.
    pub after: Option<&'a Value>,
}

/// The settings of a cluster.
pub struct Options {
    /// The seed of all randomness in the cluster.
    pub seed: u64,
    /// The cluster's own clock.
    pub clock: SharedClock,
    /// The latencies of the controllers.
    pub pace: Pace,
    /// The latency of requests; `None`: none.
    pub latency: Option<Latency>,
    /// The number of changes that watches can resume from.
    pub history: usize,
}

impl Options {
    /// A cluster with this seed, and the latencies measured on a real one.
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

/// A snapshot of a cluster without its clients, to start others from.
pub struct Image {
    world: World,
    elapsed: std::time::Duration,
    now: DateTime<Utc>,
    latency: Option<Latency>,
    random: Random,
}

impl Image {
    /// Its time when the snapshot was made.
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
    /// Starts a cluster with the namespaces `default` and `kube-system`, and a storage class. Call it within a tokio
    /// runtime; for determinism, a current-thread one with paused time.
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

    /// A snapshot of the cluster, which should be at rest: requests under way and the audit log are not part of it.
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

    /// Starts a cluster from a snapshot, at the snapshot's time.
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

    /// A client with this user agent in the audit log.
    #[must_use]
    pub fn client(&self, user_agent: &str, namespace: &str) -> kube::Client {
        kube::Client::new(self.service(user_agent), namespace)
    }

    /// The service below such a client, for tests that add layers.
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

    /// Stores an object, such as a definition, without a request.
    pub fn install(&self, object: Value) -> Result<(), Refusal> {
        let mut world = self.shared.lock();
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let name = object["kind"].as_str().unwrap_or_default().to_owned();
        let kind = world.kinds.by_kind(&version, &name).cloned().ok_or_else(Refusal::no_such_path)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        world.create(&kind, &namespace, object, &WriteOptions::default())?;
        drop(world);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Sets the fault plan.
    pub fn set_faults(&self, plan: Box<dyn FaultPlan>) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Sets the latencies of the controllers.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.lock().agenda.pace = pace;
    }

    /// Installs an admission policy for later writes.
    pub fn admit(&self, policy: Policy) {
        let mut world = self.shared.lock();
        world.policies.retain(|there| there.name != policy.name);
        world.policies.push(policy);
    }

    /// Removes an admission policy; its earlier effects stay.
    pub fn withdraw(&self, policy: &str) {
        self.shared.lock().policies.retain(|there| there.name != policy);
    }

    /// Makes the StatefulSet controller serialize revisions differently and re-sync every set, as the upgrade of
    /// Kubernetes from 1.33 to 1.34 did, which compared bytes only: every set gets a new revision for the same
    /// template.
    pub fn reserialise_revisions(&self) {
        self.shared.lock().reserialise_revisions();
        self.shared.wake.notify_one();
    }

    /// Suspends or resumes the StatefulSet controller.
    pub fn suspend_stateful_sets(&self, suspended: bool) {
        self.shared.lock().agenda.stateful_sets_suspended = suspended;
        self.shared.wake.notify_one();
    }

    /// True if the garbage collector has items in its queue.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.shared.lock().agenda.is_collecting()
    }

    /// Compacts the history: open watches and list pages that are behind get 410.
    pub fn compact(&self) {
        let mut world = self.shared.lock();
        let version = world.store.version();
        world.store.compact(version);
        world.store.wake_all();
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.shared.lock().audit.clone()
    }

    /// The audit log without its first `entries`.
    #[must_use]
    pub fn audit_after(&self, entries: usize) -> Vec<AuditEntry> {
        self.shared.lock().audit.get(entries..).map(<[AuditEntry]>::to_vec).unwrap_or_default()
    }

    /// The length of the audit log.
    #[must_use]
    pub fn audit_len(&self) -> usize {
        self.shared.lock().audit.len()
    }

    /// Returns and clears the audit log.
    #[must_use]
    pub fn take_audit(&self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.shared.lock().audit)
    }

    /// Clears the audit log.
    pub fn clear_audit(&self) {
        self.shared.lock().audit.clear();
    }

    /// The store's version; every change increases it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.lock().store.version()
    }

    /// The number of open watches.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.shared.lock().store.watcher_count()
    }

    /// A stored object.
    #[must_use]
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let world = self.shared.lock();
        let kind = world.kinds.by_kind(api_version, kind)?;
        let key = (namespace.to_owned(), name.to_owned());
        world.store.get(kind.shelf, &key).map(|object| object.value.clone())
    }

    /// Calls `show` for each change after a version, oldest first. False if some of them have been compacted.
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

    /// All objects by kind, namespace and name, to compare two runs.
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
        // The bodies are valid; a refusal would show in the first test.
        let _ = world.create(&kind, "", body, &WriteOptions::default());
    }
}
