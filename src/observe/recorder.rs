//! Buffers for what is recorded during a reconcile and published when it ends: events, and the answer of a node's
//! sidecar.

use std::sync::{Arc, Mutex, PoisonError};

use crate::api::Reason;
use crate::planner::node::status::SidecarAnswer;

/// Buffers events until the reconcile ends. The tasks and writes of one reconcile share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Recorded>>>);

/// An event to be published.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recorded {
    /// The event's reason.
    pub reason: Reason,
    /// Distinguishes the event from others of the same reason.
    pub cause: String,
    /// The event's note, a sentence.
    pub note: String,
}

impl Recorder {
    /// Records an event.
    pub fn record(&self, reason: Reason, cause: impl Into<String>, note: impl Into<String>) {
        let recorded = Recorded { reason, cause: cause.into(), note: note.into() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    /// Returns the events recorded so far, in order, and empties the buffer.
    #[must_use]
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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
