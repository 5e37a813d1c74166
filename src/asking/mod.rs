//! Asking sidecars beside the reconciles. A reconcile that waits for a sidecar keeps its slot from all others: a
//! thousand sidecars that are cut off would keep every node's status from being looked at. So a task says what it wants
//! to know and goes on with what was last answered; a bounded number of askers asks, and the node is looked at again
//! when there is an answer.
//!
//! The peers of hooks are asked in the same way, by askers of their own ([`hooks`]).
//!
//! What is remembered here is lost with the process, and then asked once more.

mod askers;
pub mod hooks;
mod peer;
mod question;
#[cfg(test)]
mod tests;

pub use askers::{ASK_AGAIN, AT_ONCE, Askers, Heard, Lane, Lanes};
pub use question::{Halt, Peer, Question, Said, Wish};
