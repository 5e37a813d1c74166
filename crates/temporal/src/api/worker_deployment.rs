//! WorkerDeployment: a fleet of stateless workers of Temporal, in versions.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use windlass_core::api::Hook;
use windlass_core::api::schema::{int_or_string, pod_template};

use super::{Connection, RolloutSpec, WorkerDeploymentStatus};
use crate::port::DeploymentName;

/// Workers of Temporal from one template, and how a new version of them takes over.
#[allow(clippy::duplicated_attributes, reason = "columns have fields of one name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "WorkerDeployment",
    plural = "workerdeployments",
    shortname = "wwd",
    category = "windlass",
    namespaced,
    doc = "Workers of Temporal from one template, in versions that live side by side, and how a new one takes over.",
    status = "WorkerDeploymentStatus",
    derive = "PartialEq",
    printcolumn(name = "Current", type_ = "string", json_path = ".status.currentBuildID"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.targetBuildID"),
    printcolumn(name = "Ramp", type_ = "integer", json_path = ".status.rampPercent"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Rollout",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='UpToDate')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='UpToDate')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkerDeploymentSpec {
    /// How many workers each version has; 0 to 10000. Absent: left to an autoscaler, and never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// Where Temporal is.
    pub connection: Connection,
    /// The name of the deployment in Temporal. Default: `<namespace>/<name>`. It does not change.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub deployment_name: Option<String>,
    /// What a worker is: a pod template. `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_DEPLOYMENT_NAME` and
    /// `TEMPORAL_WORKER_BUILD_ID` are added to the environment of its containers.
    #[schemars(schema_with = "pod_template")]
    pub template: Value,
    /// Names the version by hand: at most 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends. Under the same ID another
    /// template updates that version's workers where they are, which running workflows may not survive.
    #[serde(
        default,
        rename = "unsafeCustomBuildID",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub unsafe_custom_build_id: Option<String>,
    /// How many more workers a version may have while it is updated where it is: a number or a percentage. Default: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_surge: Option<IntOrString>,
    /// How many fewer: a number or a percentage. Default: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// How a new version takes over.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// Steps of one's own in a rollout, at BeforeRollout, AfterStep, BeforePromotion or AfterRollout. A change of them rolls
    /// nothing out, and counts at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
    /// What becomes of a version on which no workflow runs any more.
    #[serde(default)]
    pub sunset: Sunset,
    /// No new version is made where there are so many. Default: 20.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_versions: u32,
    /// Stops before the next effect of a rollout, and goes on when it is false again. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// The rollout hash to promote (see `status.requestedRolloutHash`): without steps, and under Manual at all.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub force_promote: Option<String>,
    /// A step that gets no further for so long is stalled. Default: 600.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: u32,
    /// How many revisions that nothing refers to are kept. Default: 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 0, max = 1000))]
    pub revision_history_limit: u32,
    /// What becomes of routing and workers when the object is deleted. Delete: tasks go to workers without a version, and
    /// each version goes when no workflow runs on it. Retain: all goes on as it is. Default: Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What becomes of a version on which no workflow runs any more.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sunset {
    /// It has no more pods so long after it was drained. Default: 3600.
    #[serde(default = "hour")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub scale_down_delay_seconds: u32,
    /// Its Deployment and its record in Temporal are deleted so long after it was drained, and not before it has no more
    /// pods. Default: 86400.
    #[serde(default = "day")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub delete_delay_seconds: u32,
}

impl Default for Sunset {
    fn default() -> Self {
        Self { scale_down_delay_seconds: hour(), delete_delay_seconds: day() }
    }
}

/// What becomes of routing and workers when the object is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// Tasks go to workers without a version, and versions go when they are drained.
    #[default]
    Delete,
    /// All goes on as it is.
    Retain,
}

impl WorkerDeploymentSpec {
    /// The deployment's name in Temporal, for an object with this namespace and name.
    #[must_use]
    pub fn deployment(&self, namespace: &str, name: &str) -> DeploymentName {
        let default = || format!("{namespace}/{name}");
        DeploymentName::new(self.deployment_name.clone().unwrap_or_else(default))
    }
}

/// Reads an empty string as absent.
fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

fn ten() -> u32 {
    10
}

fn twenty() -> u32 {
    20
}

fn ten_minutes() -> u32 {
    600
}

fn hour() -> u32 {
    3_600
}

fn day() -> u32 {
    86_400
}
