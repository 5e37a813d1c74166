//! How a plan can end, and the value for it in a status.

use strum::{AsRefStr, Display, EnumString};

use super::history::HistoryEntry;

/// How a rollout's plan ended: a value in `status.history` and `status.rejected`.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
pub enum Ending {
    /// Every node was observed at the target.
    Complete,
    /// Another plan replaced it, or its purpose no longer applies.
    Superseded,
    /// A user aborted it.
    Aborted,
    /// It stalled, or one of its hooks failed, and the rollout is rolled back.
    RolledBack,
    /// It failed permanently.
    Failed,
}

impl HistoryEntry {
    /// How the plan ended; `None` if this version does not know the value.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.outcome.parse().ok()
    }
}
