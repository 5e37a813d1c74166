//! Keeps the answer of a node's sidecar until the reconcile ends.

use std::sync::{Arc, Mutex, PoisonError};

use crate::planner::node::status::SidecarAnswer;

/// Keeps the last answer of a node's sidecar until the reconcile ends, for the node's status.
#[derive(Clone, Debug)]
pub struct SidecarRecorder(Arc<Mutex<SidecarAnswer>>);

impl SidecarRecorder {
    /// A recorder whose answer is this one until another is recorded.
    #[must_use]
    pub fn new(answer: SidecarAnswer) -> Self {
        Self(Arc::new(Mutex::new(answer)))
    }

    /// Records an answer.
    pub fn record(&self, answer: SidecarAnswer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The answer recorded last.
    #[must_use]
    pub fn last(&self) -> SidecarAnswer {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
