//! WorkerDeployment: versioned, stateless Temporal workers.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use windlass_core::api::Hook;
use windlass_core::api::schema::{int_or_string, pod_template};

use super::source::ConnectionFields;
use super::{ConnectionSource, RolloutSpec, WorkerDeploymentStatus};
use crate::port::DeploymentName;

/// The desired state of Temporal workers from one template, and how a new version of them takes over.
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
    doc = "WorkerDeployment runs versioned Temporal workers and shifts tasks to new versions.",
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
    /// The desired number of workers of each version: 0 to 10000. If it is absent, an autoscaler sets it,
    /// and Windlass only writes the 0 that retires a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// connection identifies the Temporal frontend, the Temporal namespace and the credentials.
    #[schemars(with = "ConnectionFields")]
    pub connection: ConnectionSource,
    /// The name of the deployment in Temporal; it cannot be changed. Defaults to
    /// `<namespace>/<name>`.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub deployment_name: Option<String>,
    /// The pod template of the workers. Windlass adds `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`,
    /// `TEMPORAL_DEPLOYMENT_NAME` and `TEMPORAL_WORKER_BUILD_ID` to the environment of its containers.
    #[schemars(schema_with = "pod_template")]
    pub template: Value,
    /// pools lists further pools of workers under the same version, such as workers of other task queues with other
    /// resources; at most 10. Each has its own Deployment, `<name>-<build ID>-<pool>`. The build ID is that of all pools,
    /// which are rolled out and retired together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub pools: Vec<Pool>,
    /// unsafeCustomBuildID replaces the generated build ID of the version: at most 63 characters of `[A-Za-z0-9._-]`,
    /// alphanumeric at both ends. Under the same ID, a changed template updates the version's workers in place. Running
    /// workflows may not survive that.
    #[serde(
        default,
        rename = "unsafeCustomBuildID",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub unsafe_custom_build_id: Option<String>,
    /// The maximum number of additional workers while Windlass updates a version's workers in place. Value
    /// can be an absolute number or a percentage. Defaults to 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_surge: Option<IntOrString>,
    /// The maximum number of workers that may be unavailable while Windlass updates a version's
    /// workers in place. Value can be an absolute number or a percentage. Defaults to 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// perVersion lists manifests of objects that each version with workers has, such as a HorizontalPodAutoscaler; at
    /// most 10. Windlass substitutes `{{deployment}}` (the version's Deployment), `{{buildID}}`, `{{deploymentName}}` (the
    /// deployment in Temporal) and `{{temporalNamespace}}`, and fills in `scaleTargetRef: {}` and an empty
    /// `spec.selector.matchLabels`. An object has the name of its Deployment, with `-` and `metadata.name` if that is set. A
    /// change takes effect at once and starts no rollout. The operator manages the kinds of its flag `--worker-resource`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "manifests")]
    pub per_version: Vec<Value>,
    /// rollout determines how a new version takes over.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// hooks lists user-defined steps at BeforeRollout, AfterStep, BeforePromotion or AfterRollout; at most 16. A
    /// change takes effect at once and starts no rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
    /// sunset determines when Windlass removes a version that no workflow runs on.
    #[serde(default)]
    pub sunset: Sunset,
    /// The number of versions at which Windlass creates no new ones. Defaults to 20.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_versions: u32,
    /// paused stops a rollout before its next step. The rollout continues when paused is false again. Defaults to
    /// false.
    #[serde(default)]
    pub paused: bool,
    /// The rollout hash to promote, as in `status.requestedRolloutHash`. Under Progressive, Windlass
    /// then skips the remaining steps. Manual promotes nothing without it.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub force_promote: Option<String>,
    /// The number of seconds without progress after which a task of the rollout is stalled.
    /// Defaults to 600.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: u32,
    /// The number of unreferenced revisions to keep. Defaults to 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 0, max = 1000))]
    pub revision_history_limit: u32,
    /// deletionPolicy determines what happens to routing and workers when the object is deleted. Delete returns tasks
    /// to unversioned workers and deletes each version once no workflow runs on it. Retain keeps routing and workers.
    /// Defaults to Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// A pool of workers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// The name of the pool, which is part of the names of its Deployments: at most 15 characters.
    #[schemars(length(min = 1, max = 15))]
    pub name: String,
    /// The desired number of workers of the pool in each version: 0 to 10000. If it is absent, an autoscaler sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// The pod template of the pool. Windlass adds the same environment as in `spec.template`.
    #[schemars(schema_with = "pod_template")]
    pub template: Value,
}

/// When Windlass removes a version that no workflow runs on.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sunset {
    /// The number of seconds after a version has drained at which Windlass scales it to 0.
    /// Defaults to 3600.
    #[serde(default = "hour")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub scale_down_delay_seconds: u32,
    /// The number of seconds after a version has drained at which Windlass deletes its Deployment
    /// and its record in Temporal. Windlass does not delete them before the version has no pods. Defaults to 86400.
    #[serde(default = "day")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub delete_delay_seconds: u32,
}

impl Default for Sunset {
    fn default() -> Self {
        Self { scale_down_delay_seconds: hour(), delete_delay_seconds: day() }
    }
}

/// What happens to routing and workers when the object is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// Tasks return to unversioned workers. Windlass deletes each version once it is drained.
    #[default]
    Delete,
    /// Routing and workers stay.
    Retain,
}

impl WorkerDeploymentSpec {
    /// The name of the deployment in Temporal, for an object with this namespace and name.
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

fn manifests(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 10,
        "items": {
            "type": "object",
            "description": "The manifest of an object.",
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["apiVersion", "kind"],
            "properties": {
                "apiVersion": {"type": "string", "description": "The group and version, for example `autoscaling/v2`."},
                "kind": {"type": "string", "description": "The kind, for example `HorizontalPodAutoscaler`."}
            }
        }
    })
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
