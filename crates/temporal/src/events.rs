//! Events (`events.k8s.io/v1`), one per cause: the name is derived from the cause, so that a second create, by any
//! replica, conflicts. Events are best effort; the status history is the record.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tracing::debug;
use windlass_core::revision::hash::hex;
use windlass_engine::sentence::cut;

use crate::api::Reason;
use crate::cluster::{Cluster, ClusterError, Kind};

/// The longest note that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// An event to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// True for type `Warning`.
    pub is_warning: bool,
    /// The reason.
    pub reason: Reason,
    /// Distinguishes it from other events with the same reason; the event's name is derived from it.
    pub cause: String,
    /// The note, a sentence.
    pub note: String,
}

impl Event {
    /// An event of type `Normal`.
    pub fn normal(reason: Reason, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { is_warning: false, reason, cause: cause.into(), note: note.into() }
    }

    /// An event of type `Warning`.
    pub fn warning(reason: Reason, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(reason, cause, note) }
    }
}

/// Holds events until the status that they are about is written. A reconcile and its tasks share one.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    /// Adds an event.
    pub fn record(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Removes and returns the events, in order.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends an event about an object. A failure is only logged.
pub async fn send(cluster: &Cluster, about: &Value, event: &Event, instance: &str, now: DateTime<Utc>) {
    let meta = &about["metadata"];
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let digest = Sha256::digest(format!("{}/{}/{}", text("uid"), event.reason, event.cause));
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{}.{}", text("name"), hex(&digest[..8])), "namespace": text("namespace")},
        "eventTime": now.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "windlass.dev/operator",
        "reportingInstance": instance,
        "action": event.reason.as_ref(),
        "reason": event.reason.as_ref(),
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "note": cut(&event.note, MAX_NOTE),
        "regarding": {
            "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment", "name": text("name"),
            "namespace": text("namespace"), "uid": text("uid"), "resourceVersion": text("resourceVersion"),
        },
    });
    match cluster.create(Kind::Event, &event, false).await {
        Ok(()) | Err(ClusterError::Conflict(_)) => {}
        Err(error) => debug!(%error, "an event was lost"),
    }
}
