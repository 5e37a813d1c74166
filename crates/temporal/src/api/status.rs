//! The observed state of a WorkerDeployment.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::api::{Condition, HistoryEntry, HookStatus, RawPlan, Rejected};

use super::{Connection, EvacuationStatus};
use crate::port::BuildId;

/// The observed state of a WorkerDeployment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerDeploymentStatus {
    /// The generation of the spec that this status is based on.
    pub observed_generation: i64,
    /// The build ID of the desired version.
    #[serde(rename = "targetBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub target_build_id: Option<BuildId>,
    /// The build ID of the current version in Temporal.
    #[serde(rename = "currentBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub current_build_id: Option<BuildId>,
    /// The build ID of the ramping version in Temporal.
    #[serde(rename = "rampingBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ramping_build_id: Option<BuildId>,
    /// The percentage of tasks that the ramping version receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_percent: Option<i32>,
    /// The rollout hash of the desired version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_rollout_hash: Option<String>,
    /// The rollout hash of the last completed rollout; absent before the first one
    /// completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_rollout_hash: Option<String>,
    /// The name of the last completed ControllerRevision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The name of the desired ControllerRevision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// A target whose rollout was aborted, rolled back or failed. Windlass does not try it again until the
    /// target changes or a retry names the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The value of `forcePromote` that was already used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent_force_promote: Option<String>,
    /// The last retry that Windlass accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent_retry: Option<String>,
    /// The time of the latest restart that Windlass accepted (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_at: Option<String>,
    /// The reason for the active rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The connection that was last found in `spec.connection`. Workers keep it while the object that
    /// `spec.connection` names does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// The time since which Temporal gives no usable answers; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub temporal_lost_at: Option<DateTime<Utc>>,
    /// versions lists the versions, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionRecord>,
    /// The plan of the active rollout or evacuation, or of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// The latest evacuation of a version that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationStatus>,
    /// hooks lists the hooks that failed or wait for approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// history lists the last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// conditions are `Ready`, `UpToDate`, `RolloutInProgress`, `Stalled` and `Reconciling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The observed state of a version.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// The build ID of the version.
    #[serde(rename = "buildID")]
    #[schemars(with = "String")]
    pub build_id: BuildId,
    /// The name of the ControllerRevision that the version's workers are created from; absent if it is not
    /// kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The name of the version's Deployment; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The state of the version: NotRegistered, Inactive, Ramping, Current, Draining or Drained.
    #[serde(default)]
    pub state: VersionState,
    /// pools lists the Deployments of a version with several pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolRecord>,
    /// The desired number of workers, of all pools.
    #[serde(default)]
    pub replicas: i32,
    /// The number of workers that are ready.
    #[serde(default)]
    pub ready: i32,
    /// The time since which the version has been in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<DateTime<Utc>>,
    /// The time since which no workflow runs on the version; absent while workflows run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub drained_since: Option<DateTime<Utc>>,
    /// The number of running workflows that are pinned to the version, when last counted. Windlass
    /// counts them for versions that drain or never received tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_workflows: Option<i64>,
    /// The number of the version's pollers that Temporal had seen in the last minutes, when last counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pollers: Option<i32>,
    /// resources lists the version's objects of `spec.perVersion`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<VersionResource>,
}

/// The Deployment of a pool.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolRecord {
    /// The name of the pool; empty for that of `spec.template`.
    pub name: String,
    /// The name of its Deployment.
    pub deployment: String,
    /// The desired number of workers.
    pub replicas: i32,
    /// The number of workers that are ready.
    pub ready: i32,
}

/// An object of a version.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionResource {
    /// The group and version of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// True if the object matches `spec.perVersion`, or what it was when it was last valid.
    pub applied: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The state of a version.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum VersionState {
    /// Temporal does not list the version.
    #[default]
    NotRegistered,
    /// Temporal lists the version. It has never received unpinned tasks.
    Inactive,
    /// The version receives a share of the unpinned tasks.
    Ramping,
    /// The version receives the unpinned tasks.
    Current,
    /// The version receives no unpinned tasks. Workflows may still run on it.
    Draining,
    /// The version receives no unpinned tasks, and no workflow runs on it.
    Drained,
}
