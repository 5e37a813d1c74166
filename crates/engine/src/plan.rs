//! A plan and its tasks as they are persisted.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::PlanId;
use super::seed::Step;
use super::sentence::{MAX_FAILURE_BYTES, cut};

/// Where a plan stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PlanState {
    /// It is being carried out.
    Active,
    /// All its tasks are done.
    Complete,
    /// A task failed for good, or the plan could not be read.
    Failed,
    /// Another plan took its place.
    Superseded,
    /// A person stopped it.
    Aborted,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum TaskState {
    /// Not begun.
    Pending,
    /// Begun, and waiting for something.
    Running,
    /// Done.
    Complete,
    /// Failed for good.
    Failed,
    /// It need not be done: a person said so, or it found so itself.
    Skipped,
}

impl TaskState {
    /// Whether a plan may move past a task in this state.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Skipped)
    }
}

/// One step of a plan as it is persisted: the type's name and its params in raw form, resolved through
/// the registry only when it runs, so that an unknown type can still be read, shown and written back.
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
    /// Where it stands.
    pub state: TaskState,
    /// How often in a row it failed in passing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Which time it is that it is tried, from the second on, which a person asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// What it remembers from one run to the next.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub progress: Value,
    /// When it first ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    /// After this it counts as stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// What it waits for, or why it failed, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What is being done to an object: an ordered list of tasks, persisted before the first of them acts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Its ID.
    pub id: PlanId,
    /// The recipe that the plan was made from.
    pub recipe: String,
    /// What the plan goes to.
    pub target_hash: String,
    /// Where it stands.
    pub state: PlanState,
    /// When it was made.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    /// How many plans to this target failed before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// When what failed is tried again, if it is: the current task of an active plan that failed in
    /// passing (the engine keeps this), or a failed plan as a whole (whoever retries plans keeps it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<DateTime<Utc>>,
    /// Its steps.
    pub tasks: Vec<TaskRecord>,
    /// Why it failed, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl TaskRecord {
    /// The record of a step of which nothing has been done.
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

    /// Reads the stored form; an error is a sentence that names what cannot be read.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        Self::deserialize(value)
            .map_err(|e| cut(&format!("the persisted plan cannot be read: {e}"), MAX_FAILURE_BYTES))
    }

    /// Whether it is being carried out.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == PlanState::Active
    }

    /// The index of the first task that is not over, if any.
    #[must_use]
    pub fn current(&self) -> Option<usize> {
        self.tasks.iter().position(|t| !t.state.is_over())
    }

    /// The first task that is not over, if any.
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
