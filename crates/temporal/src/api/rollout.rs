//! How a new version takes over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::api::schema::raw_object;

/// How a new version takes over.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// strategy determines how tasks move to a new version. Progressive: in steps. AllAtOnce: all at the same time.
    /// Manual: when `spec.forcePromote` requests it. Defaults to Progressive if there are steps, otherwise to
    /// AllAtOnce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// steps lists the steps of Progressive, in ascending order; at most 20. Full traffic (100) is the end of the
    /// rollout, not a step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub steps: Vec<RampStep>,
    /// A workflow that must succeed on the new version before the version receives tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// onFailure determines what happens when the gate fails. Hold stops the rollout until a person decides. Rollback
    /// returns all tasks to the previous version and rejects the new one until it changes or is retried. Defaults to
    /// Hold.
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
    /// A user promotes the new version.
    Manual,
    /// All tasks move at the same time.
    AllAtOnce,
    /// Tasks move in steps.
    Progressive,
}

/// A step of a ramp.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RampStep {
    /// The percentage of unpinned tasks that the new version receives.
    #[schemars(range(min = 1, max = 99))]
    pub percent: u8,
    /// The minimum duration of the step, in seconds. Defaults to 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub pause_seconds: u32,
    /// gate makes Windlass run the gate again before this step. The gate always runs before the first step. Defaults to
    /// false.
    #[serde(default)]
    pub gate: bool,
    /// hooks makes the rollout wait after this step until the hooks at AfterStep are done. Defaults to false.
    #[serde(default)]
    pub hooks: bool,
}

/// A workflow that must succeed on the new version.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The type of the workflow.
    #[schemars(length(min = 1, max = 1000))]
    pub workflow_type: String,
    /// taskQueues lists the task queues on which Windlass runs the workflow, once on each. Defaults to all task queues
    /// of the version that have workflow tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub task_queues: Vec<String>,
    /// The only argument of the workflow: an object. Defaults to no argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "raw_object")]
    pub input: Option<Value>,
    /// inputFrom selects the key of a ConfigMap or Secret whose value, a JSON object, is the argument. Windlass reads it
    /// when it starts the workflow. The field excludes `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InputFromSchema")]
    pub input_from: Option<InputFrom>,
    /// The number of seconds after which the gate fails if the workflow has not succeeded. Defaults
    /// to 600.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// onRollback makes Windlass also run the gate for a version that was current before. Defaults to false.
    #[serde(default)]
    pub on_rollback: bool,
}

/// The source of a gate's input, in the namespace of the WorkerDeployment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum InputFrom {
    /// A key of a ConfigMap.
    ConfigMapKeyRef(KeyRef),
    /// A key of a Secret.
    SecretKeyRef(KeyRef),
}

/// The source of a gate's input. All objects are in the namespace of the WorkerDeployment.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "a structural schema has no variants")]
struct InputFromSchema {
    /// configMapKeyRef selects a key in the data of a ConfigMap.
    config_map_key_ref: Option<KeyRef>,
    /// secretKeyRef selects a key in the data of a Secret.
    secret_key_ref: Option<KeyRef>,
}

/// A key of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct KeyRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn ten_minutes() -> u32 {
    600
}

/// The reaction to a failed gate.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnFailure {
    /// The rollout stops until a person decides.
    #[default]
    Hold,
    /// All tasks return to the previous version.
    Rollback,
}
