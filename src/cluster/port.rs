//! The port itself: every write of the controllers goes through these few calls. The election writes its Lease, and the
//! command line what its user asks for, beside it.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Value, json};

use super::raw::{Parts, Sent};
use super::{ClusterError, Kind, observed::Meta};

/// The object that a write is about, as it was observed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The resourceVersion that the write was decided on.
    pub resource_version: String,
}

impl Target {
    /// The object with this metadata.
    #[must_use]
    pub fn of(kind: Kind, meta: &Meta) -> Self {
        Self {
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }

    /// How a sentence calls it.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// Which part of an object a patch is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The object without its status.
    Main,
    /// Its status.
    Status,
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchOp {
    /// Sets a field, whether it is there or not.
    Set {
        /// A JSON pointer.
        path: String,
        /// What it becomes, whole.
        value: Value,
    },
    /// Removes a field that is there.
    Remove {
        /// A JSON pointer.
        path: String,
    },
}

impl PatchOp {
    /// Sets the field at a JSON pointer.
    #[must_use]
    pub fn set(path: impl Into<String>, value: Value) -> Self {
        Self::Set { path: path.into(), value }
    }

    /// Removes the field at a JSON pointer.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    /// The operation as RFC 6902 writes it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Set { path, value } => json!({"op": "add", "path": path, "value": value}),
            Self::Remove { path } => json!({"op": "remove", "path": path}),
        }
    }

    /// The same for a client to send, or why its path is no JSON pointer.
    pub(super) fn into_operation(self) -> Result<PatchOperation, String> {
        let pointer = |path: String| PointerBuf::parse(path).map_err(|error| error.to_string());
        Ok(match self {
            Self::Set { path, value } => PatchOperation::Add(AddOperation { path: pointer(path)?, value }),
            Self::Remove { path } => PatchOperation::Remove(RemoveOperation { path: pointer(path)? }),
        })
    }
}

/// Escapes a key for use in a JSON pointer.
#[must_use]
pub fn pointer_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// What an event says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventNote {
    /// The sentence.
    pub note: String,
    /// When it was last said.
    pub at: DateTime<Utc>,
}

impl EventNote {
    /// Reads an event of `events.k8s.io/v1`, whichever client library wrote it.
    #[must_use]
    pub fn read(event: &Value) -> Option<Self> {
        let time = |t: &Value| t.as_str()?.parse::<DateTime<Utc>>().ok();
        let said =
            [&event["series"]["lastObservedTime"], &event["deprecatedLastTimestamp"], &event["eventTime"]];
        // When it was sent tells nothing of what happened first: events are sent one after another, and later than they happened.
        let at = said.into_iter().filter_map(time).max();
        let at = at.or_else(|| time(&event["deprecatedFirstTimestamp"]));
        let at = at.or_else(|| time(&event["metadata"]["creationTimestamp"]))?;
        Some(Self { note: event["note"].as_str()?.to_owned(), at })
    }
}

/// A pod as the API server itself says it is: what a wave rests on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LivePod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion, as a number: what is newer has a larger one.
    pub version: u64,
    /// Whether it is Ready, and not being deleted.
    pub ready: bool,
}

impl LivePod {
    /// Reads a pod from the API server's JSON.
    #[must_use]
    pub fn read(pod: &Value) -> Self {
        Self::of(pod, &Meta::read(pod))
    }

    /// The same of a pod whose metadata are read.
    #[must_use]
    pub(super) fn of(pod: &impl Sent, meta: &Meta) -> Self {
        let pod = pod.parts(CONDITIONS);
        let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let says_ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        Self {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            version: meta.version(),
            ready: says_ready && !meta.terminating,
        }
    }
}

/// By what objects are chosen, in the API server's own notation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// Their labels.
    Labels(String),
    /// Their fields.
    Fields(String),
}

const CONDITIONS: Parts = Parts::Only(&[("status", Parts::Only(&[("conditions", Parts::All)]))]);

/// Everything that Windlass asks of a Kubernetes API server beside watching: writes, and the few reads that may not come from
/// the stores in [`super::View`].
///
/// A write's answer is in the view when the call returns, so that nobody acts on less than it knows.
#[cfg_attr(test, mockall::automock)]
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Creates an object from its manifest; answers with what was stored.
    async fn create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError>;

    /// Asks what a create would do, with strict field validation; nothing is stored. The name is
    /// made up by the server, so that an object that is there already is no obstacle.
    async fn try_create(&self, kind: Kind, manifest: Value) -> Result<(), ClusterError>;

    /// Patches an object that is still at the target's resourceVersion; answers with what was stored.
    async fn patch(&self, target: Target, part: Part, ops: Vec<PatchOp>) -> Result<Value, ClusterError>;

    /// Asks what a patch would do; nothing is stored.
    async fn try_patch(&self, target: Target, ops: Vec<PatchOp>) -> Result<Value, ClusterError>;

    /// Deletes the object with the target's UID, its dependents in the background.
    async fn delete(&self, target: Target) -> Result<(), ClusterError>;

    /// Reads an object from the API server itself, for names whose owner is not known from a watch.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError>;

    /// The names of all objects of a kind in a namespace, from the API server itself: those that no watch shows too.
    async fn names(&self, kind: Kind, namespace: &str) -> Result<Vec<String>, ClusterError>;

    /// The pods that carry a fleet's label, from the API server itself and as they are now: a consistent read. What it
    /// shows is in the view when the call returns.
    async fn live_pods(&self, namespace: &str, fleet: &str) -> Result<Vec<LivePod>, ClusterError>;

    /// One pod by its name, from the API server itself and as it is now; what it shows is in the view when the call
    /// returns, also that there is none.
    async fn live_pod(&self, namespace: &str, name: &str) -> Result<Option<LivePod>, ClusterError>;

    /// Objects of a kind that a selector chooses, from the API server itself. Of very many it answers with some: they are to
    /// be told of, not decided on.
    async fn selected(&self, kind: Kind, namespace: &str, by: Selector) -> Result<Vec<Value>, ClusterError>;
}
