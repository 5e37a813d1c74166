//! The inputs of a plan: the steps of its recipe, and the values that distinguish it from other plans.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
