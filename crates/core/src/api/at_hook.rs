//! The current hook of a plan, read from its tasks.

use super::HookPoint;
use super::TaskType;
use crate::engine::{Plan, TaskRecord, TaskState};

/// The current hook of a plan.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AtHook {
    /// The hook's name.
    pub hook: String,
    /// The ID of the task that runs it.
    pub task_id: String,
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// The hook point; `None` for a task of a custom recipe.
    pub point: Option<HookPoint>,
    /// True if the hook waits for a user's approval.
    pub asks: bool,
    /// True if the hook has failed.
    pub failed: bool,
    /// What the hook waits for, or why it failed.
    pub message: String,
}

impl AtHook {
    /// The current hook of an active plan, if its current task is a hook's.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        let task = plan.current_task().filter(|_| plan.is_active())?;
        Some(Self {
            hook: hook_of(task)?.to_owned(),
            task_id: task.id.clone(),
            attempt: attempt_of(task),
            point: point_of(task),
            asks: TaskType::AwaitApproval.is(task),
            failed: task.state == TaskState::Failed,
            message: task.message.clone(),
        })
    }

    /// The key of a retry of this hook in the status: `TASK/ATTEMPT`.
    #[must_use]
    pub fn tried(&self) -> String {
        format!("{}/{}", self.task_id, self.attempt)
    }
}

/// The number of a task's current attempt; 1 is the first.
#[must_use]
pub fn attempt_of(task: &TaskRecord) -> u32 {
    task.attempt.max(1)
}

/// The name of the hook that a task runs, if it runs one.
#[must_use]
pub fn hook_of(task: &TaskRecord) -> Option<&str> {
    task.params["hook"].as_str()
}

/// A task's message for a reader who does not see which hook it runs.
#[must_use]
pub fn message_of(task: &TaskRecord) -> String {
    match hook_of(task) {
        Some(hook) if !task.message.is_empty() => format!("hook {hook}: {}", task.message),
        _ => task.message.clone(),
    }
}

/// The hook point of a task that comes from `updateStrategy.hooks`; `None` for other tasks.
#[must_use]
pub fn point_of(task: &TaskRecord) -> Option<HookPoint> {
    serde_json::from_value(task.params["at"].clone()).ok()
}
