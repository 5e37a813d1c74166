//! Events (`events.k8s.io/v1`), each at most once for its cause: its name is made from the cause, so that a second one finds
//! the name taken, whoever sends it. History is the record; an event may be lost.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tracing::debug;
use windlass_core::revision::hash::hex;
use windlass_engine::sentence::cut;

use crate::cluster::{Cluster, ClusterError, Kind};

/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;

/// Something to be told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Whether somebody should look.
    pub is_warning: bool,
    /// The reason: one of [`crate::api::reasons::EVENTS`].
    pub reason: &'static str,
    /// What tells it from others of the same reason.
    pub cause: String,
    /// A sentence.
    pub note: String,
}

impl Event {
    /// That all is well.
    pub fn normal(reason: &'static str, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { is_warning: false, reason, cause: cause.into(), note: note.into() }
    }

    /// That somebody should look.
    pub fn warning(reason: &'static str, cause: impl Into<String>, note: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(reason, cause, note) }
    }
}

/// Keeps what is to be told until the status that it is about is written. A look and the tasks of its plan share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    /// Keeps something to be told.
    pub fn record(&self, news: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(news);
    }

    /// What was kept, in its order; it is kept no more.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends an event about an object.
pub async fn send(cluster: &Cluster, about: &Value, news: &Event, instance: &str, now: DateTime<Utc>) {
    let meta = &about["metadata"];
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let digest = Sha256::digest(format!("{}/{}/{}", text("uid"), news.reason, news.cause));
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{}.{}", text("name"), hex(&digest[..8])), "namespace": text("namespace")},
        "eventTime": now.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "windlass.dev/operator",
        "reportingInstance": instance,
        "action": news.reason,
        "reason": news.reason,
        "type": if news.is_warning { "Warning" } else { "Normal" },
        "note": cut(&news.note, MAX_NOTE),
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
