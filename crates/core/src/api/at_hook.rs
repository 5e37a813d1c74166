//! The hook that a plan is at, read from its tasks.

use super::HookPoint;
use super::TaskType;
use crate::engine::{Plan, TaskRecord, TaskState};

/// The hook that a plan is at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AtHook {
    /// The hook's name.
    pub hook: String,
    /// The task that carries it out.
    pub task_id: String,
    /// Which attempt that is: 1 is the first.
    pub attempt: u32,
    /// Where it stands; none of a task of a recipe of one's own.
    pub at: Option<HookPoint>,
    /// Whether it waits for a person.
    pub asks: bool,
    /// Whether it has failed.
    pub failed: bool,
    /// What it waits for, or why it failed.
    pub message: String,
}

impl AtHook {
    /// The hook that an active plan is at, if it is at one.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        let task = plan.current_task().filter(|_| plan.is_active())?;
        Some(Self {
            hook: hook_of(task)?.to_owned(),
            task_id: task.id.clone(),
            attempt: attempt_of(task),
            at: point_of(task),
            asks: TaskType::AwaitApproval.is(task),
            failed: task.state == TaskState::Failed,
            message: task.message.clone(),
        })
    }

    /// What a retry of it is called in the status.
    #[must_use]
    pub fn tried(&self) -> String {
        format!("{}/{}", self.task_id, self.attempt)
    }
}

/// Which attempt a task is at: 1 is the first.
#[must_use]
pub fn attempt_of(task: &TaskRecord) -> u32 {
    task.attempt.max(1)
}

/// The name of the hook that a task carries out, if it does.
#[must_use]
pub fn hook_of(task: &TaskRecord) -> Option<&str> {
    task.params["hook"].as_str()
}

/// The point at which a task of the list stands.
#[must_use]
pub fn point_of(task: &TaskRecord) -> Option<HookPoint> {
    serde_json::from_value(task.params["at"].clone()).ok()
}
