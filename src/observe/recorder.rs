//! Events that are recorded in the middle of a reconcile, and sent when it ends.

use std::sync::{Arc, Mutex, PoisonError};

/// Keeps events until the reconcile ends. Tasks and writes of one reconcile share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Recorded>>>);

/// Something that was done, for an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recorded {
    /// The event's reason.
    pub reason: &'static str,
    /// What tells it from others of its reason.
    pub cause: String,
    /// A sentence.
    pub note: String,
}

impl Recorder {
    /// Keeps an event.
    pub fn record(&self, reason: &'static str, cause: impl Into<String>, note: impl Into<String>) {
        let recorded = Recorded { reason, cause: cause.into(), note: note.into() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    /// The events so far, in their order, which are kept no more.
    #[must_use]
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
