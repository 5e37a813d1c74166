//! The persisted form of a plan and its tasks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::PlanId;
use super::seed::Step;
use super::sentence::{MAX_FAILURE_BYTES, cut};

/// The state of a plan.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PlanState {
    /// It is being executed.
    Active,
    /// All its tasks are done or skipped.
    Complete,
    /// A task failed permanently, or the plan could not be read.
    Failed,
    /// Another plan replaced it, or its purpose no longer applies.
    Superseded,
    /// A user aborted it.
    Aborted,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum TaskState {
    /// Not started.
    Pending,
    /// Started, and waiting for something.
    Running,
    /// Done.
    Complete,
    /// Failed; it runs again only if a retry resets it.
    Failed,
    /// It does not have to run: a user skipped it, or it found that it does not apply.
    Skipped,
}

impl TaskState {
    /// True if a plan may move past a task in this state.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Skipped)
    }
}

/// One step of a plan as it is persisted, with the type's name and the raw params. They are resolved through the
/// registry only when the task runs, so that an unknown type can still be read, shown and written back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRecord {
    /// The plan's ID, `-`, and the task's index.
    pub id: String,
    /// The task's type, in kebab case.
    #[serde(rename = "type")]
    pub type_: String,
    /// The task's fields.
    #[serde(default = "empty_object", skip_serializing_if = "is_empty_object")]
    pub params: Value,
    /// Its state.
    pub state: TaskState,
    /// The number of consecutive transient errors.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The number of the attempt, from the second one (after a retry) on; 0 during the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// What the task keeps from one run to the next.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub progress: Value,
    /// When it first ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    /// The time from which it counts as stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// What it waits for, or why it failed, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An ordered list of tasks that changes an object. It is persisted before the first task acts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Its ID.
    pub id: PlanId,
    /// The recipe that the plan was created from.
    pub recipe: String,
    /// The hash of the plan's target.
    pub target_hash: String,
    /// Its state.
    pub state: PlanState,
    /// When it was created.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    /// How many plans to this target failed before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// When the next retry is due, if any: of the current task of an active plan after a transient error, or after a
    /// run
    /// that changed its progress (set by the engine), or of a failed plan as a whole (set by the caller that retries
    /// plans).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<DateTime<Utc>>,
    /// Its tasks, in order.
    pub tasks: Vec<TaskRecord>,
    /// Why it failed, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl TaskRecord {
    /// The record of a step that has not started.
    #[must_use]
    pub fn pending(id: String, step: &Step) -> Self {
        Self {
            id,
            type_: step.type_.clone(),
            params: Value::Object(step.params.clone()),
            state: TaskState::Pending,
            attempts: 0,
            attempt: 0,
            progress: Value::Null,
            started_at: None,
            finished_at: None,
            deadline: None,
            message: String::new(),
        }
    }
}

impl Plan {
    /// The stored form.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// Reads the stored form. The error is a sentence that names what cannot be read.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        Self::deserialize(value)
            .map_err(|e| cut(&format!("the persisted plan cannot be read: {e}"), MAX_FAILURE_BYTES))
    }

    /// True if it is being executed.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == PlanState::Active
    }

    /// The index of the first task that is neither Complete nor Skipped, if any.
    #[must_use]
    pub fn current(&self) -> Option<usize> {
        self.tasks.iter().position(|t| !t.state.is_over())
    }

    /// The first task that is neither Complete nor Skipped, if any.
    #[must_use]
    pub fn current_task(&self) -> Option<&TaskRecord> {
        self.current().and_then(|i| self.tasks.get(i))
    }
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.is_null()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}
