//! How a plan can end, and the word for it in a status.

use super::history::HistoryEntry;

crate::engine::words! {
    /// How a rollout's plan ended: a word of `status.history` and of `status.rejected`.
    pub enum Ending {
        /// Every node was observed at the target.
        Complete,
        /// Another plan took its place.
        Superseded,
        /// A person stopped it.
        Aborted,
        /// It stalled, and the way back begins.
        RolledBack,
        /// It cannot be carried out.
        Failed,
    }
}

impl HistoryEntry {
    /// How it ended, where this version knows the word.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        Ending::of(&self.outcome)
    }
}
