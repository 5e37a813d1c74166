//! The glyphs for nodes and tasks, for terminal and page.

use super::Health;
use windlass_engine::TaskState;

impl Health {
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
