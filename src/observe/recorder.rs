//! What is recorded in the middle of a reconcile and told when it ends: events, and what a node's sidecar answered.

use std::sync::{Arc, Mutex, PoisonError};

use crate::api::Reason;
use crate::planner::node::status::SidecarAnswer;

/// Keeps events until the reconcile ends. Tasks and writes of one reconcile share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Recorded>>>);

/// Something that was done, for an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recorded {
    /// The event's reason.
    pub reason: Reason,
    /// What tells it from others of its reason.
    pub cause: String,
    /// A sentence.
    pub note: String,
}

impl Recorder {
    /// Keeps an event.
    pub fn record(&self, reason: Reason, cause: impl Into<String>, note: impl Into<String>) {
        let recorded = Recorded { reason, cause: cause.into(), note: note.into() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    /// The events so far, in their order, which are kept no more.
    #[must_use]
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps the last answer of a node's sidecar until the reconcile ends: its status says it.
#[derive(Clone, Debug)]
pub struct SidecarRecorder(Arc<Mutex<SidecarAnswer>>);

impl SidecarRecorder {
    /// One that says this until it is told something else.
    #[must_use]
    pub fn new(answer: SidecarAnswer) -> Self {
        Self(Arc::new(Mutex::new(answer)))
    }

    /// Takes in an answer.
    pub fn record(&self, answer: SidecarAnswer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The last answer.
    #[must_use]
    pub fn last(&self) -> SidecarAnswer {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
