//! Sends requests to sidecars in the background, so that no reconcile waits for one: a thousand unreachable sidecars
//! would otherwise occupy all workers. A task states its question and continues with the last answer; a bounded number
//! of requests runs concurrently, and an answer requeues the node.
//!
//! The requests of hooks are sent in the same way, by a prober of their own ([`hooks`]).
//!
//! The state is lost with the process; then the questions are asked again.

pub mod hooks;
mod prober;
mod question;
mod sidecar;
#[cfg(test)]
mod tests;

pub use prober::{AnswerState, Limits, Peers, Prober};
pub use question::{Halt, Peer, Question, RequestKind, SidecarReport, SidecarRequest};
pub use sidecar::{SIDECAR_VALIDITY, SidecarAnswer, SidecarProber};
