//! What a plan is made of: the steps of its recipe, and what tells it from other plans.

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

/// What tells one plan of an object from another.
#[derive(Clone, Copy, Debug)]
pub struct PlanSeed<'a> {
    /// The UID of the object that the plan changes.
    pub uid: &'a str,
    /// What the plan goes to.
    pub target_hash: &'a str,
    /// The time now.
    pub now: DateTime<Utc>,
    /// How many plans to this target failed before this one.
    pub attempt: u32,
    /// What tells this plan from one that was made at the same instant: the ID of the plan before it, or
    /// nothing where there was none. A clock may stand still while a target changes and changes back.
    pub disambiguator: &'a str,
}
