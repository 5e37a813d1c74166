//! The event recorder (`events.k8s.io/v1`). Each event is sent at most once for its cause: its name is derived from the
//! cause, so a duplicate gets 409 AlreadyExists, whichever process sends it. Events may be lost; a status is the durable
//! record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};
use windlass_clock::{SharedClock, monotonic};
use windlass_core::observed::Meta;
use windlass_core::revision::hash::hex;
use windlass_engine::sentence::cut;

use crate::{Cluster, ClusterError, Kind, View};

/// How long queued events are still sent when a controller stops: an hour later somebody may ask why a pod was deleted.
pub const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The capacity of each queue of events. Further events are dropped with a log entry.
const QUEUE: usize = 4096;
/// The maximum length of a note that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;
/// How long nothing may have changed before a deferred event is sent.
const QUIET: Duration = Duration::from_millis(100);
/// The maximum time that a deferred event waits for [`QUIET`].
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of recorded causes at which they are forgotten. The API server refuses what is sent again.
const MAX_RECORDED: usize = 200_000;
/// The reporting controller of the events.
const REPORTER: &str = "windlass.dev/operator";

/// The type of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// A person should look.
    Warning,
}

/// An event about an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Normal or Warning.
    pub type_: EventType,
    /// The reason.
    pub reason: &'static str,
    /// Distinguishes it from other events of the same reason about the same object: each cause is sent only once.
    pub cause: String,
    /// The note: one sentence.
    pub note: String,
}

impl Event {
    /// A Normal event.
    pub fn normal(
        reason: impl Into<&'static str>,
        cause: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self { type_: EventType::Normal, reason: reason.into(), cause: cause.into(), note: note.into() }
    }

    /// A Warning event.
    pub fn warning(
        reason: impl Into<&'static str>,
        cause: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self { type_: EventType::Warning, ..Self::normal(reason, cause, note) }
    }
}

/// Keeps the events of a reconcile until the status that they are about is written. The tasks and writes of one
/// reconcile share it.
#[derive(Clone, Debug, Default)]
pub struct EventBuffer(Arc<Mutex<Vec<Event>>>);

impl EventBuffer {
    /// Adds an event.
    pub fn record(&self, event: Event) {
        self.events().push(event);
    }

    /// Removes and returns the events, in order.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events())
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event recorder. Cloning it is cheap; all clones share the queues.
#[derive(Clone)]
pub struct EventRecorder {
    prompt: mpsc::Sender<Queued>,
    deferred: mpsc::Sender<Queued>,
    /// By object, reason and cause: whether the event was sent, or left out.
    recorded: Arc<Mutex<HashMap<Id, bool>>>,
    clock: SharedClock,
    instance: Arc<str>,
}

/// The digest of an object, a reason and a cause. The first half is the name of the event.
type Id = [u8; 16];

/// A queued event, and when it was queued.
struct Queued {
    event: Value,
    since: Instant,
}

impl EventRecorder {
    /// The recorder, and the future that sends the events. It completes once all clones of the recorder are dropped and
    /// the queues are empty.
    pub fn new(
        cluster: Arc<dyn Cluster>,
        view: Arc<View>,
        clock: SharedClock,
        instance: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (prompt, mut at_once) = mpsc::channel::<Queued>(QUEUE);
        let (deferred, mut later) = mpsc::channel::<Queued>(QUEUE);
        let port = cluster.clone();
        let send = async move {
            let first = async {
                while let Some(queued) = at_once.recv().await {
                    post(&*port, queued.event).await;
                }
            };
            let then = async {
                let mut quiet_at = None;
                while let Some(queued) = later.recv().await {
                    if quiet_at != Some(view.changes()) {
                        quiet_at = until_quiet(&view, queued.since + PATIENCE).await;
                    }
                    post(&*cluster, queued.event).await;
                }
            };
            tokio::join!(first, then);
        };
        (Self { prompt, deferred, recorded: Arc::default(), clock, instance: instance.into() }, send)
    }

    /// Sends an event about an object.
    pub fn record(&self, kind: Kind, about: &Meta, event: &Event) {
        self.enqueue(&self.prompt, kind, about, event, || true);
    }

    /// Sends an event about an object once nothing changes any more, so that it does not compete with the writes that a
    /// controller waits for. It is left out if `is_admitted` returns false.
    pub fn record_when_quiet(
        &self,
        kind: Kind,
        about: &Meta,
        event: &Event,
        is_admitted: impl FnOnce() -> bool,
    ) {
        self.enqueue(&self.deferred, kind, about, event, is_admitted);
    }

    /// Whether this process has sent the event, or left it out; `None` if it was not recorded.
    #[must_use]
    pub fn was_sent(&self, about: &Meta, reason: &str, cause: &str) -> Option<bool> {
        self.recorded().get(&id(about, reason, cause)).copied()
    }

    fn enqueue(
        &self,
        queue: &mpsc::Sender<Queued>,
        kind: Kind,
        about: &Meta,
        event: &Event,
        is_admitted: impl FnOnce() -> bool,
    ) {
        let id = id(about, event.reason, &event.cause);
        if self.recorded().contains_key(&id) {
            return;
        }
        let is_sent = is_admitted();
        let mut recorded = self.recorded();
        if recorded.len() >= MAX_RECORDED {
            recorded.clear();
        }
        recorded.insert(id, is_sent);
        drop(recorded);
        if !is_sent {
            return;
        }
        let reason = event.reason;
        let event = self.manifest(kind, about, event, &format!("{}.{}", about.name, hex(&id[..8])));
        if queue.try_send(Queued { event, since: monotonic() }).is_err() {
            warn!(object = %about.key(), reason, "an event was dropped: the queue of events is full");
        }
    }

    fn manifest(&self, kind: Kind, about: &Meta, event: &Event, name: &str) -> Value {
        json!({
            "apiVersion": Kind::Event.api_version(),
            "kind": Kind::Event.name(),
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": self.clock.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "reportingController": REPORTER,
            "reportingInstance": &*self.instance,
            "action": event.reason,
            "reason": event.reason,
            "type": if event.type_ == EventType::Normal { "Normal" } else { "Warning" },
            "note": cut(&event.note, MAX_NOTE),
            "regarding": {
                "apiVersion": kind.api_version(),
                "kind": kind.name(),
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
                "resourceVersion": about.resource_version,
            },
        })
    }

    fn recorded(&self) -> MutexGuard<'_, HashMap<Id, bool>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(about: &Meta, reason: &str, cause: &str) -> Id {
    let digest = Sha256::digest(format!("{}/{reason}/{cause}", about.uid));
    std::array::from_fn(|at| digest[at])
}

async fn post(cluster: &dyn Cluster, event: Value) {
    match cluster.create(Kind::Event, event).await {
        Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
        Err(error) => debug!(%error, "an event could not be sent"),
    }
}

/// Waits until nothing has changed for [`QUIET`], or until the deadline. Returns the change count of the view if it
/// became quiet.
async fn until_quiet(view: &View, deadline: Instant) -> Option<u64> {
    let mut seen = view.changes();
    while monotonic() < deadline {
        tokio::time::sleep(QUIET).await;
        let now = view.changes();
        if now == seen {
            return Some(now);
        }
        seen = now;
    }
    None
}
