//! What was observed of a WorkerDeployment.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::api::{Condition, HistoryEntry, HookStatus, RawPlan, Rejected};

use crate::port::BuildId;

/// What was observed of a WorkerDeployment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerDeploymentStatus {
    /// The generation of the spec that this status was computed for.
    pub observed_generation: i64,
    /// The build ID of what is wanted.
    #[serde(rename = "targetBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub target_build_id: Option<BuildId>,
    /// The current version in Temporal.
    #[serde(rename = "currentBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub current_build_id: Option<BuildId>,
    /// The ramping version in Temporal.
    #[serde(rename = "rampingBuildID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ramping_build_id: Option<BuildId>,
    /// How much goes to the ramping version, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_percent: Option<i32>,
    /// The rollout hash of what is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_rollout_hash: Option<String>,
    /// The rollout hash of what last completed; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_rollout_hash: Option<String>,
    /// The ControllerRevision of what last completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The ControllerRevision of what is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// A target that was aborted, rolled back or failed: not tried again until it changes or a retry names the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The `forcePromote` that was already used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent_force_promote: Option<String>,
    /// The retry that was already obeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent_retry: Option<String>,
    /// The latest restart obeyed (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_at: Option<String>,
    /// Why the rollout that is active began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when Temporal has not answered as it should; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub temporal_lost_at: Option<DateTime<Utc>>,
    /// Its versions, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionRecord>,
    /// The rollout that is active, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// The hooks that somebody has to look at: they have failed, or wait for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// The last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Ready, UpToDate, RolloutInProgress, Stalled and Reconciling.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One version.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// Its build ID.
    #[serde(rename = "buildID")]
    #[schemars(with = "String")]
    pub build_id: BuildId,
    /// The ControllerRevision that its workers are made from, where one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Its Deployment, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// How it stands.
    #[serde(default)]
    pub state: VersionState,
    /// How many workers it should have.
    #[serde(default)]
    pub replicas: i32,
    /// How many are ready.
    #[serde(default)]
    pub ready: i32,
    /// Since when it is in that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<DateTime<Utc>>,
    /// Since when no workflow runs on it, where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub drained_since: Option<DateTime<Utc>>,
    /// How many workflows are pinned to it and run, when that was last counted: of versions that drain, or never took any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_workflows: Option<i64>,
    /// How many pollers of it Temporal has seen in the last minutes, when that was last asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pollers: Option<i32>,
}

/// How a version stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum VersionState {
    /// Temporal does not list it.
    #[default]
    NotRegistered,
    /// Temporal lists it, and it never took tasks that are not pinned.
    Inactive,
    /// It takes a part of them.
    Ramping,
    /// It takes them.
    Current,
    /// It takes none any more, and workflows may run on it.
    Draining,
    /// It takes none any more, and none runs on it.
    Drained,
}
