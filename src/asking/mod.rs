//! Asks sidecars in the background, so that no reconcile waits for one: a thousand unreachable sidecars would
//! otherwise occupy all workers. A task states its question and continues with the last answer; a bounded number of
//! requests runs concurrently, and an answer requeues the node.
//!
//! The peers of hooks are asked in the same way, with queues of their own ([`hooks`]).
//!
//! The state is lost with the process; then the questions are asked again.

mod askers;
pub mod hooks;
mod peer;
mod question;
#[cfg(test)]
mod tests;

pub use askers::{ASK_AGAIN, AT_ONCE, AnswerState, Askers, Lane, Lanes};
pub use question::{Halt, Peer, Question, SidecarReport, Wish};
