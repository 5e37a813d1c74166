//! The process next to a node's main container that keeps the pod out of service until the node is marked
//! ready: the protocol, the operator's client for it, and the server of `windlass sidecar`.
//!
//! Nothing here knows of Kubernetes, plans or tasks of plans.

mod client;
mod exchange;
mod protocol;
mod url;

#[cfg(test)]
pub use client::MockSidecarClient;
pub use client::{HttpSidecar, SidecarClient, SidecarError};
pub use protocol::{MAX_TASK_ID_BYTES, RefusalBody, Status, TaskAnswer, TaskRequest, TaskState, TaskType};
pub use url::{UrlError, url_for};
