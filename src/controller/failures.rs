//! How often the reconcile of each object has failed in a row.

use crate::cache::remembered::Remembered;
use windlass_kube_port::{Key, Kind};

/// By kind and key.
#[derive(Default)]
pub struct Failures {
    in_a_row: Remembered<str, u32>,
}

impl Failures {
    /// The text that identifies an object.
    #[must_use]
    pub fn id(kind: Kind, key: &Key) -> String {
        format!("{} {key}", kind.name())
    }

    /// Counts a failure. Returns how many there were in a row.
    pub fn count(&self, id: &str) -> u32 {
        let count = self.in_a_row.get(id).unwrap_or_default().saturating_add(1);
        self.in_a_row.put(id, count);
        count
    }

    /// Records that the last reconcile succeeded, or that the object is gone.
    pub fn end(&self, id: &str) {
        self.in_a_row.take(id);
    }

    /// True if the last reconcile of an object failed.
    #[must_use]
    pub fn has(&self, kind: Kind, key: &Key) -> bool {
        self.in_a_row.get(&Self::id(kind, key)).is_some()
    }

    /// The number of objects whose last reconcile failed.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.in_a_row.size()
    }
}
