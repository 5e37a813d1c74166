//! The process next to a node's main container that keeps the pod out of service until the node is marked
//! ready: the protocol, the operator's client for it, and the server of `windlass sidecar`.
//!
//! Nothing here knows of Kubernetes, plans or tasks of plans.

mod application;
mod args;
mod client;
mod exchange;
mod memory;
mod protocol;
mod run;
mod server;
#[cfg(test)]
mod tests;
mod token;
pub(crate) mod url;

pub use crate::outward::{Access, Trust};
pub use args::SidecarArgs;
#[cfg(test)]
pub use client::MockSidecarClient;
pub use client::{HttpSidecar, SidecarClient, SidecarError};
pub use protocol::{
    MAX_TASK_ID_BYTES, RefusalBody, SidecarTaskType, Status, TaskAnswer, TaskRequest, TaskState,
};
pub use run::run;
pub use server::{SidecarServer, router, serve};
pub use url::{UrlError, url_for};
