//! The only way in which Windlass reads and writes a Kubernetes API server. Reads come from watch caches ([`View`])
//! that include our own writes. Writes go through [`Cluster`] and are guarded by a resourceVersion or a UID.
//!
//! The crate also has what each controller needs around them: the client with its time-outs ([`client`]), the election
//! of a leader ([`lease`]), the [`workqueue`], and the recorder of [`events`].

pub mod cache;
pub mod client;
pub mod error;
pub mod events;
pub mod follow;
pub mod freshness;
mod index;
pub mod kind;
mod kube_port;
pub mod lease;
pub mod metrics;
pub mod port;
mod proxy;
pub mod raw;
pub mod refusal_store;
pub mod refusals;
mod request;
pub mod view;
pub mod watch;
pub mod workqueue;

#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use error::ClusterError;
pub use events::{Event, EventBuffer, EventRecorder, EventType};
pub use kind::Kind;
pub use kube_port::{KubeCluster, strict};
pub use metrics::PortMetrics;
#[cfg(any(test, feature = "test-support"))]
pub use port::MockCluster;
pub use port::{Cluster, EventNote, Eviction, LivePod, Part, PatchOp, Selector, Target};
pub use view::View;
pub use windlass_core::observed::{self, Key};
