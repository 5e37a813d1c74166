//! When a rollout may update nodes: in which windows, and after which other fleets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time during which rollouts may update nodes.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When the window opens, in the syntax of a CronJob: minute, hour, day of the month, month, day of the week.
    #[schemars(length(min = 1, max = 100))]
    pub schedule: String,
    /// How long the window stays open: hours, minutes or both, for example 3h or 1h30m.
    #[schemars(length(min = 1, max = 16))]
    pub duration: String,
    /// The time zone of the schedule, for example Europe/Berlin. Defaults to UTC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
}

/// Another object of the same namespace that has to be up to date first.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Predecessor {
    /// kind is NodeDeployment or StatefulSetRollout.
    #[schemars(extend("enum" = ["NodeDeployment", "StatefulSetRollout"]))]
    pub kind: String,
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
