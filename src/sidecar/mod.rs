//! The process next to a node's main container that keeps the pod out of service until the node is marked
//! ready: the protocol, the operator's client for it, and the server of `windlass sidecar`.
//!
//! Nothing here knows of Kubernetes, plans or tasks of plans.

mod protocol;
mod url;

pub use protocol::{MAX_TASK_ID_BYTES, RefusalBody, Status, TaskAnswer, TaskRequest, TaskState, TaskType};
pub use url::{UrlError, url_for};
