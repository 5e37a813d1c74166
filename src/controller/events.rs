//! Events (`events.k8s.io/v1`), each at most once for its cause: its name is made from the cause, so that
//! a second one finds the name taken, whoever sends it. History is the record; an event may be lost.
//!
//! What nodes do as they should is told when the cluster is quiet: two events a node would otherwise compete with
//! the very writes that a wave waits for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::clock::SharedClock;
use crate::clock::monotonic;
use crate::cluster::observed::Meta;
use crate::cluster::{Cluster, ClusterError, Kind, Memory, View};
use crate::revision::hash::hex;

/// How many events may wait to be sent; beyond it they are dropped, and the log says so.
const QUEUE: usize = 4096;
/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// How long nothing may have changed before an event that can wait is sent.
const QUIET: Duration = Duration::from_millis(100);
/// How long an event that can wait waits at most for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// The component that events come from.
const REPORTER: &str = "windlass.dev/operator";

/// Where events go.
#[derive(Clone)]
pub struct Events {
    prompt: mpsc::Sender<Waiting>,
    patient: mpsc::Sender<Waiting>,
    memory: Arc<Memory>,
    clock: SharedClock,
    instance: Arc<str>,
}

/// An event to be sent, and since when it waits.
struct Waiting {
    event: Value,
    since: Instant,
}

/// Whether an event is about trouble.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Events {
    /// A sender, and the task that sends until every sender is gone and all is sent.
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

    /// Sends an event about an object. `cause` tells it from others of the same reason; the same cause is
    /// told only once.
    #[cfg_attr(test, allow(clippy::missing_panics_doc, reason = "unit tests alone look at the closed set"))]
    pub fn send(&self, kind: Kind, about: &Meta, tone: Tone, reason: &str, cause: &str, note: &str) {
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
        let digest = Sha256::digest(format!("{}/{reason}/{cause}", about.uid));
        let id = hex(&digest[..8]);
        let name = format!("{}.{id}", about.name);
        if self.memory.told.get(&name).is_some() {
            return;
        }
        self.memory.told.put(name.clone(), ());
        let event = json!({
            "apiVersion": Kind::Event.api_version(),
            "kind": Kind::Event.name(),
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": self.clock.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "reportingController": REPORTER,
            "reportingInstance": &*self.instance,
            "action": reason,
            "reason": reason,
            "type": if tone == Tone::Normal { "Normal" } else { "Warning" },
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
        let can_wait = kind == Kind::StatefulNode && tone == Tone::Normal;
        let queue = if can_wait { &self.patient } else { &self.prompt };
        if queue.try_send(Waiting { event, since: monotonic() }).is_err() {
            warn!(object = %about.key(), reason, "an event was dropped: too many wait to be sent");
        }
    }
}

async fn post(cluster: &dyn Cluster, event: Value) {
    match cluster.create(Kind::Event, event).await {
        Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
        Err(error) => debug!(%error, "an event was lost"),
    }
}

/// Waits until nothing has changed for a while, or until the deadline. Answers with how often something had
/// changed by then, if it became quiet.
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
    use crate::cluster::port::MockCluster;

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

        fn tell(&self, kind: Kind, tone: Tone, reason: &str) {
            self.events.send(kind, &Meta { uid: "u".into(), ..Meta::default() }, tone, reason, "", "");
        }

        /// What is sent within a time in which something changes every 50 ms.
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
        stage.tell(Kind::StatefulNode, Tone::Normal, "PlanStarted");
        stage.tell(Kind::StatefulNode, Tone::Normal, "PlanComplete");
        assert!(stage.sent_while_busy(3000).await.is_empty());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let told: Vec<String> = std::iter::from_fn(|| stage.sent.try_recv().ok()).collect();
        assert_eq!(told, ["PlanStarted", "PlanComplete"]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_waits_longer_than_its_patience() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, Tone::Normal, "PlanStarted");
        assert!(stage.sent_while_busy(4800).await.is_empty());
        assert_eq!(stage.sent_while_busy(500).await, ["PlanStarted"]);
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_and_fleets_are_told_at_once() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, Tone::Normal, "PlanStarted");
        stage.tell(Kind::StatefulNode, Tone::Warning, "PlanFailed");
        stage.tell(Kind::NodeDeployment, Tone::Normal, "RolloutStarted");
        assert_eq!(stage.sent_while_busy(200).await, ["PlanFailed", "RolloutStarted"]);
    }
}
