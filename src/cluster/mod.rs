//! The only port through which tasks and controllers access Kubernetes. Reads come from watch caches that include our
//! own writes; writes are guarded by a resourceVersion or a UID.

pub mod cache;
pub mod client;
pub mod error;
pub mod freshness;
mod index;
pub mod kind;
pub mod kube_port;
pub mod live_pods;
pub mod memory;
pub mod port;
mod proxy;
pub mod raw;
pub mod refusal_store;
pub mod refusals;
pub mod remembered;
mod request;
pub mod view;
pub mod watch;

#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use error::ClusterError;
pub use kind::Kind;
pub use kube_port::KubeCluster;
pub use memory::Memory;
pub use observed::Key;
pub use port::{Cluster, EventNote, LivePod, Part, PatchOp, Selector, Target};
pub use view::View;
pub use windlass_core::observed;
