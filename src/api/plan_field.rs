//! `status.plan` as it is stored: raw, so that a plan written by another version, or by hand, can never
//! keep an object from being read. It is parsed where it is used, and text until then: every node has one.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JsonText;

use chrono::{DateTime, Utc};

use crate::engine::id::lost_plan_id;
use crate::engine::{Plan, PlanState};

/// A persisted plan in its raw form.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RawPlan(pub JsonText);

impl RawPlan {
    /// The stored form of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self(plan.to_value().into())
    }

    /// The plan that is stored, or a sentence that says why it cannot be read.
    pub fn parse(&self) -> Result<Plan, String> {
        Plan::from_value(&self.0.value())
    }

    /// The plan's ID, even where the rest cannot be read.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.text("id")
    }

    /// The name of the recipe that the plan was made from, even where the rest cannot be read.
    #[must_use]
    pub fn recipe(&self) -> Option<String> {
        self.text("recipe")
    }

    fn text(&self, field: &str) -> Option<String> {
        self.0.value().get(field).and_then(Value::as_str).map(str::to_owned)
    }
}

impl RawPlan {
    /// Whether what is stored says that the plan is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.text("state").as_deref(), Some("Complete" | "Failed" | "Superseded" | "Aborted"))
    }

    /// The plan that takes the place of one of this object's that cannot be read: failed, and as much of it as is known.
    #[must_use]
    pub fn failed(&self, uid: &str, sentence: &str, now: DateTime<Utc>) -> Plan {
        let text = |field: &str| self.text(field).unwrap_or_default();
        let id = text("id");
        Plan {
            id: if id.is_empty() { lost_plan_id(uid, now) } else { id },
            recipe: text("recipe"),
            target_hash: text("targetHash"),
            state: PlanState::Failed,
            started_at: now,
            finished_at: Some(now),
            attempt: 0,
            retry_at: None,
            tasks: Vec::new(),
            failure: sentence.to_owned(),
        }
    }
}

impl JsonSchema for RawPlan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Plan".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let time = |description: &str| serde_json::json!({"type": "string", "format": "date-time", "description": description});
        json_schema!({
            "type": "object",
            "description": "What is being done, or was last done, to this object: an ordered list of tasks.",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "id": {"type": "string", "description": "10 hex digits, never the same twice for one object."},
                "recipe": {"type": "string", "description": "The recipe that the plan was made from."},
                "targetHash": {"type": "string", "description": "The hash that the plan goes to."},
                "state": {"type": "string", "description": "Active, Complete, Failed, Superseded or Aborted."},
                "startedAt": time("When it was made."),
                "finishedAt": time("When it ended."),
                "attempt": {"type": "integer", "format": "int32", "description": "How many plans to this target failed before this one."},
                "retryAt": time("When it is tried again, if it failed and is."),
                "failure": {"type": "string", "description": "Why the plan failed, in a sentence."},
                "tasks": {
                    "type": "array",
                    "description": "The plan's steps, in order.",
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {
                            "id": {"type": "string", "description": "The plan's ID, a dash, and the task's index."},
                            "type": {"type": "string", "description": "The task's type, in kebab case."},
                            "params": {"type": "object", "description": "What the task is to do it with.", "x-kubernetes-preserve-unknown-fields": true},
                            "state": {"type": "string", "description": "Pending, Running, Complete, Failed or Skipped."},
                            "attempts": {"type": "integer", "format": "int32", "description": "How often it failed in passing."},
                            "startedAt": time("When it first ran."),
                            "finishedAt": time("When it was over."),
                            "deadline": time("After this it counts as stalled."),
                            "message": {"type": "string", "description": "What it waits for, in a sentence."}
                        }
                    }
                }
            }
        })
    }
}
