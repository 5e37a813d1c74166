//! One sign for how a node is doing and for where a task stands: the terminal and the page show the same.

use super::Health;
use crate::engine::TaskState;

impl Health {
    /// Its sign.
    #[must_use]
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Failed | Self::Down => "✗",
            Self::Moving => "◐",
            Self::Settling => "◉",
            Self::Before => "○",
            Self::Serving => "●",
        }
    }
}

/// The sign of a task.
#[must_use]
pub fn task_glyph(state: TaskState) -> &'static str {
    match state {
        TaskState::Pending => "○",
        TaskState::Running => "◐",
        TaskState::Complete => "✓",
        TaskState::Failed => "✗",
        TaskState::Skipped => "–",
    }
}
