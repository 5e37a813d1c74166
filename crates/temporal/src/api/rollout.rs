//! How a new version takes over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::api::schema::raw_object;

/// How a new version takes over.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// Progressive: in steps. AllAtOnce: with one switch. Manual: when `spec.forcePromote` says so. Default: Progressive where
    /// there are steps, else AllAtOnce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The steps of Progressive, ascending; 100 is the end and no step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub steps: Vec<RampStep>,
    /// A workflow that has to succeed on the new version first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// What a failed gate leads to. Hold: nothing more is done until a person decides. Rollback: all tasks go to the version
    /// before, and this one is not tried again until it changes. Default: Hold.
    #[serde(default)]
    pub on_failure: OnFailure,
}

impl RolloutSpec {
    /// The strategy: the one that is set, or the default for these steps.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        let default = if self.steps.is_empty() { Strategy::AllAtOnce } else { Strategy::Progressive };
        self.strategy.unwrap_or(default)
    }
}

/// How a new version takes over.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Strategy {
    /// When a person says so.
    Manual,
    /// With one switch.
    AllAtOnce,
    /// In steps.
    Progressive,
}

/// A step of a ramp.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RampStep {
    /// So much of what is not pinned goes to the new version.
    #[schemars(range(min = 1, max = 99))]
    pub percent: u8,
    /// For at least so long. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub pause_seconds: u32,
    /// Whether the gate is run once more before this step. Before the first it is run in any case. Default: false.
    #[serde(default)]
    pub gate: bool,
    /// Whether the rollout stops after this step until the hooks at AfterStep are done. Default: false.
    #[serde(default)]
    pub hooks: bool,
}

/// A workflow that has to succeed on the new version.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The workflow's type.
    #[schemars(length(min = 1, max = 1000))]
    pub workflow_type: String,
    /// The task queues that it is run on, once on each. Default: all of the version's that hold workflow tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub task_queues: Vec<String>,
    /// Its one argument: an object. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "raw_object")]
    pub input: Option<Value>,
    /// After so long it has failed. Default: 600.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// Whether it is run for a version, too, that was current before. Default: false.
    #[serde(default)]
    pub on_rollback: bool,
}

fn ten_minutes() -> u32 {
    600
}

/// What a failed gate leads to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnFailure {
    /// Nothing more is done until a person decides.
    #[default]
    Hold,
    /// All tasks go to the version before.
    Rollback,
}
