//! The operator's Prometheus metrics: about itself and about fleets, never about single nodes, so that the number of
//! series follows the number of fleets. Independent of Kubernetes types: callers provide the values.

mod fleets;
mod register;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text as open_metrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use windlass_kube_port::PortMetrics;
use windlass_kube_port::metrics::QueueDepth;

use fleets::Fleets;
pub use fleets::{FleetSample, LIMITS};
use register::{Histograms, Register, Seconds};

/// The media type of `Metrics::text`: OpenMetrics 1.0, which Prometheus reads since 2.5. With a wrong media type a
/// scraper refuses the response.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const RECONCILES: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
const REQUESTS: [f64; 9] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];
const TASKS: [f64; 9] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1800.0];
const ROLLOUTS: [f64; 10] = [10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10_800.0, 36_000.0, 86_400.0];

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfKind {
    kind: &'static str,
}

/// The kind of an object, and the outcome of its reconcile.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Reconciled {
    kind: &'static str,
    /// `done`, `conflict`, the step that failed, or `panic`.
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfOutcome {
    outcome: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfTask {
    r#type: String,
    outcome: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Request {
    verb: &'static str,
    resource: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Answered {
    verb: &'static str,
    resource: String,
    code: String,
}

/// A workqueue, under the label of client-go and controller-runtime.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfQueue {
    name: &'static str,
}

impl OfQueue {
    /// The workqueue of a kind.
    fn of(kind: &'static str) -> Self {
        let name = match kind {
            "NodeDeployment" => "nodedeployment",
            "StatefulNode" => "statefulnode",
            other => other,
        };
        Self { name }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Build {
    version: &'static str,
}

fn reconcile_histogram() -> Histogram {
    Histogram::new(RECONCILES)
}

fn request_histogram() -> Histogram {
    Histogram::new(REQUESTS)
}

fn task_histogram() -> Histogram {
    Histogram::new(TASKS)
}

fn rollout_histogram() -> Histogram {
    Histogram::new(ROLLOUTS)
}

/// The operator's metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Counts>);

struct Counts {
    registry: Registry,
    reconciles: Family<Reconciled, Counter>,
    reconcile_errors: Family<OfKind, Counter>,
    reconcile_durations: Histograms<OfKind>,
    queue_depth: Family<OfQueue, Gauge>,
    queue_adds: Family<OfQueue, Counter>,
    queue_waits: Histograms<OfQueue>,
    queue_retries: Family<OfQueue, Counter>,
    requests: Family<Answered, Counter>,
    request_durations: Histograms<Request>,
    cache_ages: Family<OfKind, Seconds>,
    tasks: Histograms<OfTask>,
    rollouts: Histograms<OfOutcome>,
    leader: Gauge,
    fleets: Fleets,
    /// The workqueues whose depth is exported. The lock also serializes scrapes.
    queues: Mutex<Vec<(&'static str, QueueDepth)>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let mut register = Register(&mut registry);
        let builds = Family::<Build, Gauge>::default();
        builds.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        register.add("build_info", "The version of Windlass that runs; always 1", builds);
        let leader = register.add(
            "leader",
            "Whether this replica is the leader: it holds the Lease, or runs without leader election",
            Gauge::default(),
        );
        let fleets = Fleets::new(&mut register);
        let rollouts = register.histograms(
            "rollout_duration_seconds",
            "The duration of fleet plans, from start to end, as recorded in status.history",
            rollout_histogram,
        );
        let tasks = register.histograms(
            "task_duration_seconds",
            "The duration of tasks in the plans of fleets and nodes",
            task_histogram,
        );
        let reconciles = register.add("reconcile", "Reconciles, by outcome", Family::default());
        let reconcile_errors = register.add(
            "reconcile_errors",
            "Reconciles that failed, except for write conflicts",
            Family::default(),
        );
        let reconcile_durations = register.histograms(
            "reconcile_duration_seconds",
            "The duration of reconciles",
            reconcile_histogram,
        );
        let queue_depth =
            register.add("workqueue_depth", "Objects in the workqueue that are due", Family::default());
        let queue_adds = register.add("workqueue_adds", "Objects added to the workqueue", Family::default());
        let queue_waits = register.histograms(
            "workqueue_queue_duration_seconds",
            "How long due objects waited in the workqueue",
            reconcile_histogram,
        );
        let queue_retries = register.add(
            "workqueue_retries",
            "Objects requeued because their reconcile failed",
            Family::default(),
        );
        let requests = register.add(
            "api_requests",
            "Requests to the API server; code is <none> if there was no response",
            Family::default(),
        );
        let request_durations = register.histograms(
            "api_request_duration_seconds",
            "The time until a response of the API server began",
            request_histogram,
        );
        let cache_ages = register.add(
            "cache_age_seconds",
            "The age of the watch cache of a kind: the time since it was last known to be current; the maximum if \
             several namespaces are watched separately",
            Family::default(),
        );
        Self(Arc::new(Counts {
            reconciles,
            reconcile_errors,
            reconcile_durations,
            queue_depth,
            queue_adds,
            queue_waits,
            queue_retries,
            requests,
            request_durations,
            cache_ages,
            tasks,
            rollouts,
            leader,
            fleets,
            queues: Mutex::default(),
            registry,
        }))
    }
}

impl PortMetrics for Metrics {
    fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.0.reconciles.get_or_create(&Reconciled { kind, outcome }).inc();
        self.0.reconcile_durations.get_or_create(&OfKind { kind }).observe(took.as_secs_f64());
        // Created at the first reconcile: a series that starts with its first error shows no increase.
        let errors = self.0.reconcile_errors.get_or_create_owned(&OfKind { kind });
        if !matches!(outcome, "done" | "conflict") {
            errors.inc();
        }
    }

    fn queued(&self, kind: &'static str) {
        self.0.queue_adds.get_or_create(&OfQueue::of(kind)).inc();
    }

    fn taken(&self, kind: &'static str, waited: Duration) {
        self.0.queue_waits.get_or_create(&OfQueue::of(kind)).observe(waited.as_secs_f64());
    }

    fn retried(&self, kind: &'static str) {
        self.0.queue_retries.get_or_create(&OfQueue::of(kind)).inc();
    }

    fn queue(&self, kind: &'static str, depth: QueueDepth) {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push((kind, depth));
    }

    fn count_request(&self, verb: &'static str, resource: String, code: Option<u16>, took: Duration) {
        let request = Request { verb, resource: resource.clone() };
        self.0.request_durations.get_or_create(&request).observe(took.as_secs_f64());
        let code = code.map_or_else(|| "<none>".to_owned(), |code| code.to_string());
        self.0.requests.get_or_create(&Answered { verb, resource, code }).inc();
    }
}

impl Metrics {
    /// Sets how long ago the cache of a kind was last known to be current.
    pub fn cache_age(&self, kind: &'static str, age: Duration) {
        self.0.cache_ages.get_or_create(&OfKind { kind }).set(age.as_secs_f64());
    }

    /// Counts a task that ended, with its duration.
    pub fn task_ended(&self, type_: &str, outcome: &str, took: Duration) {
        let of = OfTask { r#type: type_.to_owned(), outcome: outcome.to_owned() };
        self.0.tasks.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Counts a plan of a fleet that ended, with its duration.
    pub fn rollout_ended(&self, outcome: &str, took: Duration) {
        self.0.rollouts.get_or_create(&OfOutcome { outcome: outcome.to_owned() }).observe(took.as_secs_f64());
    }

    /// All metrics, in OpenMetrics. `leads`: whether this replica is the leader. `fleets` replaces the samples of the
    /// last scrape.
    #[must_use]
    pub fn text(&self, leads: bool, fleets: &[FleetSample]) -> String {
        let queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.leader.set(i64::from(leads));
        self.0.fleets.set(fleets);
        let mut depths = std::collections::BTreeMap::<&'static str, usize>::new();
        for (kind, depth) in queues.iter() {
            *depths.entry(*kind).or_default() += depth();
        }
        for (kind, depth) in depths {
            self.0.queue_depth.get_or_create(&OfQueue::of(kind)).set(depth as i64);
        }
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = open_metrics::encode(&mut out, &self.0.registry);
        out
    }
}

#[cfg(test)]
mod tests;
