//! The event recorder (`events.k8s.io/v1`). Each event is sent at most once for its cause: its name is derived from the
//! cause, so a duplicate gets 409 AlreadyExists, whichever process sends it. Events may be lost; `status.history` is
//! the durable record.
//!
//! Normal events of nodes wait until the cluster is quiet: otherwise two events per node would compete with the very
//! writes that a wave waits for. In a large fleet only some of them are sent at all: nobody reads two thousand events
//! that report success, and each costs the API server as much as the delete of a pod.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::Reason;
use crate::clock::SharedClock;
use crate::clock::monotonic;
use crate::cluster::observed::Meta;
use crate::cluster::{Cluster, ClusterError, Kind, Memory, View};
use crate::revision::hash::hex;

/// The capacity of each queue of events. Further events are dropped with a log entry.
const QUEUE: usize = 4096;
/// The maximum length of a note that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;
/// How long nothing may have changed before a deferred event is sent.
const QUIET: Duration = Duration::from_millis(100);
/// The maximum time that a deferred event waits for [`QUIET`].
const PATIENCE: Duration = Duration::from_secs(5);
/// The burst and the refill interval of the rate limit on the events of node plans, for each fleet: events are sent for
/// this many plans at once, then for one more plan in each interval.
const PLANS_TOLD: u32 = 30;
const PLAN_TOLD_EVERY: Duration = Duration::from_secs(4);
/// The reporting controller of the events.
const REPORTER: &str = "windlass.dev/operator";

/// The event recorder. Cloning it is cheap; all clones share the queues.
#[derive(Clone)]
pub struct Events {
    prompt: mpsc::Sender<Waiting>,
    patient: mpsc::Sender<Waiting>,
    memory: Arc<Memory>,
    clock: SharedClock,
    instance: Arc<str>,
}

/// A queued event, and when it was queued.
struct Waiting {
    event: Value,
    since: Instant,
}

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
    pub reason: Reason,
    /// Distinguishes it from other events of the same reason about the same object: each cause is sent only once.
    pub cause: String,
    /// The note: one sentence.
    pub note: String,
}

impl Event {
    /// A Normal event.
    pub fn normal(reason: Reason, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason, cause: cause.into(), note: note.into() }
    }

    /// A Warning event.
    pub fn warning(reason: Reason, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason, cause: cause.into(), note: note.into() }
    }
}

impl Events {
    /// The recorder, and the future that sends the events. It completes once all clones of the recorder are dropped and
    /// the queues are empty.
    pub fn new(
        cluster: Arc<dyn Cluster>,
        view: Arc<View>,
        memory: Arc<Memory>,
        clock: SharedClock,
        instance: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (prompt, mut at_once) = mpsc::channel::<Waiting>(QUEUE);
        let (patient, mut later) = mpsc::channel::<Waiting>(QUEUE);
        let port = cluster.clone();
        let send = async move {
            let first = async {
                while let Some(waiting) = at_once.recv().await {
                    post(&*port, waiting.event).await;
                }
            };
            let then = async {
                let mut quiet_at = None;
                while let Some(waiting) = later.recv().await {
                    if quiet_at != Some(view.changes()) {
                        quiet_at = until_quiet(&view, waiting.since + PATIENCE).await;
                    }
                    post(&*cluster, waiting.event).await;
                }
            };
            tokio::join!(first, then);
        };
        (Self { prompt, patient, memory, clock, instance: instance.into() }, send)
    }

    /// Sends an event about an object.
    pub fn record(&self, kind: Kind, about: &Meta, event: &Event) {
        self.send(kind, about, event.type_, event.reason, &event.cause, &event.note);
    }

    /// Sends an event about an object. `cause` distinguishes it from other events of the same reason; each cause is
    /// sent only once.
    #[cfg_attr(test, allow(clippy::missing_panics_doc, reason = "only unit tests check the reason"))]
    pub fn send(&self, kind: Kind, about: &Meta, type_: EventType, reason: Reason, cause: &str, note: &str) {
        #[cfg(test)]
        assert!(
            if kind == Kind::NodeDeployment {
                crate::api::reasons::EVENTS_OF_FLEETS.contains(&reason)
            } else {
                crate::api::reasons::EVENTS_OF_NODES.contains(&reason)
            },
            "no event about a {} says {reason}",
            kind.name()
        );
        let reason = reason.as_str();
        let name = name(about, reason, cause);
        if self.memory.told.get(&name).is_some() {
            return;
        }
        let can_wait = kind == Kind::StatefulNode && type_ == EventType::Normal;
        let is_told = !can_wait || self.is_told_of(about, cause);
        self.memory.told.put(&name, is_told);
        if !is_told {
            return;
        }
        let event = json!({
            "apiVersion": Kind::Event.api_version(),
            "kind": Kind::Event.name(),
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": self.clock.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "reportingController": REPORTER,
            "reportingInstance": &*self.instance,
            "action": reason,
            "reason": reason,
            "type": if type_ == EventType::Normal { "Normal" } else { "Warning" },
            "note": crate::engine::sentence::cut(note, MAX_NOTE),
            "regarding": {
                "apiVersion": kind.api_version(),
                "kind": kind.name(),
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
                "resourceVersion": about.resource_version,
            },
        });
        let queue = if can_wait { &self.patient } else { &self.prompt };
        if queue.try_send(Waiting { event, since: monotonic() }).is_err() {
            warn!(object = %about.key(), reason, "an event was dropped: too many wait to be sent");
        }
    }

    /// True if the events of a node's plan are sent: if its `PlanStarted` was sent, or if the rate limit of its fleet
    /// allows another plan.
    fn is_told_of(&self, node: &Meta, plan_id: &str) -> bool {
        self.memory.told.get(&name(node, Reason::PlanStarted.as_str(), plan_id)).unwrap_or_else(|| {
            let now = monotonic();
            let fleet = node.owner_uid().unwrap_or(&node.uid);
            // The time at which the full burst is available again.
            let full = self.memory.plans_told.get(fleet).map_or(now, |at| at.max(now));
            let has_room = full.duration_since(now) <= PLAN_TOLD_EVERY * (PLANS_TOLD - 1);
            if has_room {
                self.memory.plans_told.put(fleet, full + PLAN_TOLD_EVERY);
            }
            has_room
        })
    }
}

/// The name of an event. The same cause always gives the same name.
fn name(about: &Meta, reason: &str, cause: &str) -> String {
    let digest = Sha256::digest(format!("{}/{reason}/{cause}", about.uid));
    format!("{}.{}", about.name, hex(&digest[..8]))
}

async fn post(cluster: &dyn Cluster, event: Value) {
    match cluster.create(Kind::Event, event).await {
        Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
        Err(error) => debug!(%error, "an event was lost"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::cluster::MockCluster;

    struct Stage {
        events: Events,
        view: Arc<View>,
        sent: mpsc::UnboundedReceiver<String>,
    }

    impl Stage {
        fn new() -> Self {
            let (told, sent) = mpsc::unbounded_channel();
            let mut cluster = MockCluster::new();
            cluster.expect_create().returning(move |_, event| {
                told.send(event["reason"].as_str().unwrap().to_owned()).unwrap();
                Ok(event)
            });
            let view = View::shared();
            let memory = Arc::new(Memory::default());
            let (events, send) =
                Events::new(Arc::new(cluster), view.clone(), memory, Arc::new(SystemClock), "test");
            tokio::spawn(send);
            Self { events, view, sent }
        }

        fn tell(&self, kind: Kind, type_: EventType, reason: Reason) {
            self.events.send(kind, &Meta { uid: "u".into(), ..Meta::default() }, type_, reason, "", "");
        }

        /// The reasons of the events that are sent within this time, while something changes every 50 ms.
        async fn sent_while_busy(&mut self, milliseconds: u64) -> Vec<String> {
            for _ in 0..milliseconds / 50 {
                self.view.pods.begin_relist();
                self.view.pods.end_relist();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::iter::from_fn(|| self.sent.try_recv().ok()).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nodes_do_as_they_should_is_told_when_it_is_quiet() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanComplete);
        assert!(stage.sent_while_busy(3000).await.is_empty());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let told: Vec<String> = std::iter::from_fn(|| stage.sent.try_recv().ok()).collect();
        assert_eq!(told, ["PlanStarted", "PlanComplete"]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_waits_longer_than_its_patience() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        assert!(stage.sent_while_busy(4800).await.is_empty());
        assert_eq!(stage.sent_while_busy(500).await, ["PlanStarted"]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_plans_of_one_fleet_a_part_is_told_each_whole() {
        let mut stage = Stage::new();
        let owner =
            |uid: &str| json!({"kind": "NodeDeployment", "name": uid, "uid": uid, "controller": true});
        let tell = |fleet: &str, reason: Reason, plans: std::ops::Range<u32>| {
            let of_node =
                json!({"metadata": {"name": "db-0", "uid": "u", "ownerReferences": [owner(fleet)]}});
            for plan in plans {
                let id = format!("{fleet}-{plan}");
                stage.events.send(
                    Kind::StatefulNode,
                    &Meta::read(&of_node),
                    EventType::Normal,
                    reason,
                    &id,
                    "",
                );
            }
        };
        tell("db", Reason::PlanStarted, 0..100);
        tell("db", Reason::PlanComplete, 0..100);
        tell("web", Reason::PlanStarted, 0..1);
        tokio::time::sleep(Duration::from_secs(8)).await;
        tell("db", Reason::PlanStarted, 100..110);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let told: Vec<String> = std::iter::from_fn(|| stage.sent.try_recv().ok()).collect();
        let of = |reason: &str| told.iter().filter(|told| *told == reason).count();
        // Another fleet has its own limit, and in eight seconds the limit of the first one allows two more.
        assert_eq!((of("PlanStarted"), of("PlanComplete")), (30 + 1 + 2, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_and_fleets_are_told_at_once() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        stage.tell(Kind::StatefulNode, EventType::Warning, Reason::PlanFailed);
        stage.tell(Kind::NodeDeployment, EventType::Normal, Reason::RolloutStarted);
        assert_eq!(stage.sent_while_busy(200).await, ["PlanFailed", "RolloutStarted"]);
    }
}
