//! The inputs of a plan: the steps of its recipe, and the values that distinguish it from other plans.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::task::Task;

/// One step of a recipe.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The task's type, in kebab case.
    #[serde(rename = "type")]
    pub type_: String,
    /// The task's fields.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

impl Step {
    /// The step that runs this task. The error says which of its fields cannot be written as JSON.
    pub fn of(task: &dyn Task) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Written {
            #[serde(rename = "type")]
            type_: String,
            params: Option<Map<String, Value>>,
        }
        let Written { type_, params } = serde_json::from_value(serde_json::to_value(task)?)?;
        Ok(Self { type_, params: params.unwrap_or_default() })
    }
}

/// The values that distinguish a plan from the other plans of its object.
#[derive(Clone, Copy, Debug)]
pub struct PlanSeed<'a> {
    /// The UID of the object that the plan changes.
    pub uid: &'a str,
    /// The hash of the plan's target.
    pub target_hash: &'a str,
    /// The current time.
    pub now: DateTime<Utc>,
    /// How many plans to this target failed before this one.
    pub attempt: u32,
    /// Distinguishes this plan from one that was created at the same instant: the ID of the previous plan, or an empty
    /// text if there was none. The clock may not advance while a target changes and changes back.
    pub disambiguator: &'a str,
}
