//! The port itself: every write of the controllers is one of these few calls. Only leader election, which writes its
//! Lease, the command line, which writes what its user asks for, and the controllers of `crates/temporal`, whose kinds
//! are their own, do not use the port.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Value, json};

use crate::raw::Sent;
use crate::{ClusterError, Kind};
use windlass_core::observed::{Meta, Observed, ObservedPod};

/// The target of a write, as it was observed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The kind.
    pub kind: Kind,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The resourceVersion that the write was decided on.
    pub resource_version: String,
}

impl Target {
    /// The target with this metadata.
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

    /// The name of the target in messages.
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
    /// The status.
    Status,
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchOp {
    /// Sets a field, which may exist or not.
    Set {
        /// A JSON pointer.
        path: String,
        /// The whole new value.
        value: Value,
    },
    /// Removes an existing field.
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

    /// The JSON pointer of the field.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Set { path, .. } | Self::Remove { path } => path,
        }
    }

    /// The new value; `None` if the field is removed.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        match self {
            Self::Set { value, .. } => Some(value),
            Self::Remove { .. } => None,
        }
    }

    /// The operation as RFC 6902 writes it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Set { path, value } => json!({"op": "add", "path": path, "value": value}),
            Self::Remove { path } => json!({"op": "remove", "path": path}),
        }
    }

    /// The operation for the client; the error is why its path is no JSON pointer.
    pub(crate) fn into_operation(self) -> Result<PatchOperation, String> {
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

/// The content of an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventNote {
    /// The note.
    pub note: String,
    /// When the event was last observed.
    pub at: DateTime<Utc>,
}

impl EventNote {
    /// Reads an event of `events.k8s.io/v1`, whichever client library wrote it.
    #[must_use]
    pub fn read(event: &Value) -> Option<Self> {
        let time = |t: &Value| t.as_str()?.parse::<DateTime<Utc>>().ok();
        let said =
            [&event["series"]["lastObservedTime"], &event["deprecatedLastTimestamp"], &event["eventTime"]];
        // The creation time is only a fallback: events are sent one after another, later than they occur, so it does
        // not give their order.
        let at = said.into_iter().filter_map(time).max();
        let at = at.or_else(|| time(&event["deprecatedFirstTimestamp"]));
        let at = at.or_else(|| time(&event["metadata"]["creationTimestamp"]))?;
        Some(Self { note: event["note"].as_str()?.to_owned(), at })
    }
}

/// A pod as the API server itself returned it. Waves depend on it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LivePod {
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The resourceVersion as a number: newer versions are higher.
    pub version: u64,
    /// True if the pod is Ready and is not being deleted.
    pub ready: bool,
    /// Since when its condition Ready has its status.
    pub since: Option<DateTime<Utc>>,
}

impl LivePod {
    /// Reads a pod from the API server's JSON.
    #[must_use]
    pub fn read(pod: &Value) -> Self {
        Self::of(pod, &Meta::read(pod))
    }

    /// Like [`Self::read`], for a pod whose metadata is already parsed.
    #[must_use]
    pub(crate) fn of(pod: &impl Sent, meta: &Meta) -> Self {
        let pod = ObservedPod::of(pod, meta.clone());
        let says_ready = pod.is_ready();
        Self {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            version: meta.version(),
            ready: says_ready && !meta.terminating,
            since: pod.ready.and_then(|ready| ready.since),
        }
    }
}

impl LivePod {
    /// A pod as the cache has it.
    #[must_use]
    pub fn cached(pod: &ObservedPod) -> Self {
        let condition = pod.ready.as_ref();
        Self {
            name: pod.meta.name.clone(),
            uid: pod.meta.uid.clone(),
            version: pod.meta.version(),
            ready: condition.is_some_and(|condition| condition.holds) && !pod.meta.terminating,
            since: condition.and_then(|condition| condition.since),
        }
    }
}

/// The answer to a request to evict a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Eviction {
    /// The pod is being deleted.
    Done,
    /// Its budget does not allow it now, in the API server's words.
    NotNow(String),
}

/// A selector, in the API server's own notation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// A label selector.
    Labels(String),
    /// A field selector.
    Fields(String),
}

/// Everything that Windlass requests from a Kubernetes API server, except watches: the writes, and the few reads that
/// may not come from the stores in [`super::View`].
///
/// The view has the result of a write when the call returns, so that nobody acts on an older state.
#[cfg_attr(any(test, feature = "test-support"), mockall::automock)]
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Creates an object from its manifest. Returns the stored object.
    async fn create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError>;

    /// Applies a manifest (server-side apply), also where other managers set its fields. With a UID in the manifest, only
    /// that object is changed. Returns the stored object.
    async fn apply(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError>;

    /// Dry-runs a create with strict field validation. The server generates the name, so that an existing object of the
    /// same name does not matter. Returns the object that it would store.
    async fn try_create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError>;

    /// Patches an object if it is still at the target's resourceVersion. Returns the stored object.
    async fn patch(&self, target: Target, part: Part, ops: Vec<PatchOp>) -> Result<Value, ClusterError>;

    /// Dry-runs a patch. Returns the object that it would store.
    async fn try_patch(&self, target: Target, ops: Vec<PatchOp>) -> Result<Value, ClusterError>;

    /// Deletes the object with the target's UID, with background propagation.
    async fn delete(&self, target: Target) -> Result<(), ClusterError>;

    /// Deletes the object with the target's UID, and leaves what it owns.
    async fn delete_and_orphan(&self, target: Target) -> Result<(), ClusterError>;

    /// Evicts the pod with the target's UID, as its PodDisruptionBudget allows.
    async fn evict(&self, target: Target) -> Result<Eviction, ClusterError>;

    /// Reads an object from the API server itself, for names whose holder no watch may show.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError>;

    /// True if an object exists. Only its metadata are read, from the API server itself.
    async fn exists(&self, kind: Kind, namespace: &str, name: &str) -> Result<bool, ClusterError>;

    /// Who has written which fields of an object: `metadata.managedFields`, from the API server itself. Empty if that is not
    /// known.
    async fn managed_fields(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Value>, ClusterError>;

    /// The names of all objects of a kind in a namespace, from the API server itself, including objects that no watch
    /// shows.
    async fn names(&self, kind: Kind, namespace: &str) -> Result<Vec<String>, ClusterError>;

    /// The pods that a label selector matches, from the API server itself, by a consistent read. The view has them when
    /// the call returns.
    async fn live_pods(&self, namespace: &str, labels: &str) -> Result<Vec<LivePod>, ClusterError>;

    /// One pod by its name, from the API server itself, as it is now. The view has the result when the call returns,
    /// also if the pod does not exist.
    async fn live_pod(&self, namespace: &str, name: &str) -> Result<Option<LivePod>, ClusterError>;

    /// The objects of a kind that a selector matches, from the API server itself, limited to one page: the result is
    /// for messages, and no decision may depend on it.
    async fn selected(&self, kind: Kind, namespace: &str, by: Selector) -> Result<Vec<Value>, ClusterError>;
}
