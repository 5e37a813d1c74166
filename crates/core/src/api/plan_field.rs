//! `status.plan` as it is stored: raw, so that a plan that was written by another version or edited by a person never
//! makes its object unreadable. It stays text until it is used, since every node has one.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JsonText;

use chrono::{DateTime, Utc};

use crate::engine::id::lost_plan_id;
use crate::engine::{Plan, PlanId, PlanState};

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

    /// Parses the plan. The error explains why the plan cannot be read.
    pub fn parse(&self) -> Result<Plan, String> {
        Plan::from_value(&self.0.value())
    }

    /// True if the stored text contains these words: cheaper than parsing it.
    #[must_use]
    pub fn mentions(&self, words: &str) -> bool {
        self.0.mentions(words)
    }

    /// The ID of the plan, even if the rest cannot be read.
    #[must_use]
    pub fn id(&self) -> Option<PlanId> {
        self.text("id").map(PlanId::from)
    }

    /// The name of the recipe that the plan was created from, even if the rest cannot be read.
    #[must_use]
    pub fn recipe(&self) -> Option<String> {
        self.text("recipe")
    }

    /// True if the plan may be active: cheaper than parsing it. No task state has that name.
    #[must_use]
    pub fn may_be_active(&self) -> bool {
        self.0.mentions("\"Active\"")
    }

    fn text(&self, field: &str) -> Option<String> {
        self.0.value().get(field).and_then(Value::as_str).map(str::to_owned)
    }
}

impl RawPlan {
    /// True if the stored state is one of a plan that has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.text("state").as_deref(), Some("Complete" | "Failed" | "Superseded" | "Aborted"))
    }

    /// True if the plan cannot be read only because some of its own fields are missing. False if a field has an invalid
    /// value, as in a plan that another version wrote or a person edited. False too if a task is incomplete, since its
    /// effects are unknown.
    #[must_use]
    pub fn has_lost_fields(&self) -> bool {
        let mut value = self.0.value();
        if Plan::from_value(&value).is_ok() {
            return false;
        }
        let blank = serde_json::json!({"id": "", "recipe": "", "targetHash": "", "state": "Active",
            "startedAt": DateTime::<Utc>::default(), "tasks": []});
        fill(&mut value, &blank);
        Plan::from_value(&value).is_ok()
    }

    /// The plan that replaces an unreadable one of this object: Failed, with the fields that are known.
    #[must_use]
    pub fn failed(&self, uid: &str, sentence: &str, now: DateTime<Utc>) -> Plan {
        let text = |field: &str| self.text(field).unwrap_or_default();
        Plan {
            id: PlanId::recorded(text("id")).unwrap_or_else(|| lost_plan_id(uid, now)),
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

/// Adds the fields that an object lacks.
fn fill(object: &mut Value, blank: &Value) {
    let (Some(object), Some(blank)) = (object.as_object_mut(), blank.as_object()) else { return };
    for (key, value) in blank {
        object.entry(key.clone()).or_insert_with(|| value.clone());
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
            "description": "The current plan of this object, or the last one: an ordered list of tasks.",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "id": {"type": "string", "description": "The ID of the plan: 10 hex digits, unique for the object."},
                "recipe": {"type": "string", "description": "The recipe that the plan was created from."},
                "targetHash": {"type": "string", "description": "The hash of the plan's target."},
                "state": {"type": "string", "description": "state is Active, Complete, Failed, Superseded or Aborted."},
                "startedAt": time("startedAt is the time at which the plan was created."),
                "finishedAt": time("finishedAt is the time at which the plan ended."),
                "attempt": {"type": "integer", "format": "int32", "description": "The number of plans to this target that failed before this one."},
                "retryAt": time("retryAt is the time of the next retry: of the current task, or of the plan if it failed."),
                "failure": {"type": "string", "description": "The reason why the plan failed."},
                "tasks": {
                    "type": "array",
                    "description": "tasks lists the tasks of the plan, in order.",
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {
                            "id": {"type": "string", "description": "The plan's ID, a dash, and the task's index."},
                            "type": {"type": "string", "description": "The task's type, in kebab case."},
                            "params": {"type": "object", "description": "params contains the parameters of the task.", "x-kubernetes-preserve-unknown-fields": true},
                            "state": {"type": "string", "description": "state is Pending, Running, Complete, Failed or Skipped."},
                            "attempts": {"type": "integer", "format": "int32", "description": "The number of consecutive transient errors."},
                            "startedAt": time("startedAt is the time at which the task first ran."),
                            "finishedAt": time("finishedAt is the time at which the task ended."),
                            "deadline": time("deadline is the time after which the task is stalled. A stalled task continues."),
                            "message": {"type": "string", "description": "message describes what the task waits for, or why it failed."}
                        }
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> RawPlan {
        RawPlan(JsonText::from(value))
    }

    #[test]
    fn plan_with_lost_fields_differs_from_unreadable_plan() {
        let whole = json!({"id": "a", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active",
            "startedAt": "2030-01-01T00:00:00Z", "tasks": [{"id": "a-0", "type": "mark-ready", "state": "Pending"}]});
        assert!(!raw(&whole).has_lost_fields());
        for field in ["id", "recipe", "targetHash", "state", "startedAt", "tasks"] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(field);
            assert!(raw(&less).has_lost_fields(), "{field}");
        }
        for field in ["id", "type", "state"] {
            let mut less = whole.clone();
            less["tasks"][0].as_object_mut().unwrap().remove(field);
            assert!(!raw(&less).has_lost_fields(), "tasks[0].{field}");
        }
        for (pointer, other) in [
            ("/state", json!("Resting")),
            ("/tasks", json!("none")),
            ("/startedAt", json!("yesterday")),
            ("/tasks/0/state", json!(7)),
            ("/tasks/0", json!("mark-ready")),
            ("/id", json!(7)),
        ] {
            let mut foreign = whole.clone();
            *foreign.pointer_mut(pointer).unwrap() = other;
            foreign.as_object_mut().unwrap().remove("recipe");
            assert!(!raw(&foreign).has_lost_fields(), "{pointer}");
        }
        assert!(!raw(&json!("a plan")).has_lost_fields());
    }
}
