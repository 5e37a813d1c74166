//! How a plan can end, and the word for it in a status.

use super::history::HistoryEntry;

/// How a rollout's plan ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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

impl Ending {
    /// The ending of this word, if it is one: another version may have written another.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let endings = [Self::Complete, Self::Superseded, Self::Aborted, Self::RolledBack, Self::Failed];
        endings.into_iter().find(|ending| ending.as_str() == word)
    }

    /// The word in `status.history`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Superseded => "Superseded",
            Self::Aborted => "Aborted",
            Self::RolledBack => "RolledBack",
            Self::Failed => "Failed",
        }
    }
}

impl HistoryEntry {
    /// How it ended, where this version knows the word.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        Ending::of(&self.outcome)
    }
}
