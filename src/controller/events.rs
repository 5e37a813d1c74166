//! Events (`events.k8s.io/v1`), each at most once for its cause: its name is made from the cause, so that
//! a second one finds the name taken, whoever sends it. History is the record; an event may be lost.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::clock::SharedClock;
use crate::cluster::observed::Meta;
use crate::cluster::{Cluster, ClusterError, Kind, Memory};
use crate::revision::hash::hex;

/// How many events may wait to be sent; beyond it they are dropped, and the log says so.
const QUEUE: usize = 4096;
/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// The component that events come from.
const REPORTER: &str = "windlass.dev/operator";

/// Where events go.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Value>,
    memory: Arc<Memory>,
    clock: SharedClock,
    instance: Arc<str>,
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
    /// A sender, and the task that sends until every sender is gone.
    pub fn new(
        cluster: Arc<dyn Cluster>,
        memory: Arc<Memory>,
        clock: SharedClock,
        instance: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, mut waiting) = mpsc::channel::<Value>(QUEUE);
        let send = async move {
            while let Some(event) = waiting.recv().await {
                match cluster.create(Kind::Event, event).await {
                    Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
                    Err(error) => debug!(%error, "an event was lost"),
                }
            }
        };
        (Self { queue, memory, clock, instance: instance.into() }, send)
    }

    /// Sends an event about an object. `cause` tells it from others of the same reason; the same cause is
    /// told only once.
    pub fn send(&self, kind: Kind, about: &Meta, tone: Tone, reason: &str, cause: &str, note: &str) {
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
        if self.queue.try_send(event).is_err() {
            warn!(object = %about.key(), reason, "an event was dropped: too many wait to be sent");
        }
    }
}
