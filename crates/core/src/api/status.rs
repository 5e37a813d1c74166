//! A fleet's status, and the parts that a node's status shares with it.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString};

use super::ending::Ending;
use super::fields::is_zero;
use super::ids::{BuildId, RestartTime, RolloutHash, SetName};
use super::policies::{ClaimRetention, DeletionPolicy};
use super::{Condition, RawPlan};
use crate::engine::PlanId;
use crate::engine::sentence::cut;

pub use super::history::{HISTORY_LIMIT, HistoryEntry, MAX_ASKED_BYTES, remember};
pub use super::problem::{MAX_PROBLEM_BYTES, Problem};
pub use super::rollout::{NodeCounts, Rollout, Stage, UNCONVERGED_LIMIT, Unconverged};

/// The observed state of a fleet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDeploymentStatus {
    /// The generation of the spec that this status is based on.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// A one-word summary: Terminating, Paused, Failed, Upgrading, Degraded, Initializing, Ready or Pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The number of nodes that exist.
    pub replicas: i32,
    /// The number of nodes that are Ready.
    pub ready_replicas: i32,
    /// The number of nodes observed at the desired revision.
    pub updated_replicas: i32,
    /// The number of nodes that have been Ready for `minReadySeconds`.
    pub available_replicas: i32,
    /// The label selector of the active set, for scale.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The set of nodes that receives traffic: the value of the label `windlass.dev/set`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub active_set: String,
    /// The name of the last completed ControllerRevision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The name of the desired ControllerRevision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// The build ID of the desired revision.
    #[serde(rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The rollout hash of the desired revision; always set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_rollout_hash: String,
    /// sameContent is present if the template differs in form from a recorded one, but the API server stores the same
    /// content for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_content: Option<SameContent>,
    /// The rollout hash of the last completed revision; absent before the first one
    /// completes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_completed_rollout_hash: String,
    /// A target whose rollout was aborted, rolled back or failed. Windlass does not try it again until the
    /// target changes or a retry names the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The value of `forcePromote` that was already used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spent_force_promote: String,
    /// The time of the latest restart that Windlass accepted (RFC 3339).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restarted_at: String,
    /// The digest of the ConfigMaps and Secrets that the annotation `windlass.dev/restart-on` names, as pods have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config_digest: String,
    /// The last value of the annotation `windlass.dev/last-request` that Windlass recorded, truncated to
    /// 256 bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_request: String,
    /// True after the fleet was scaled to 0, until its nodes exist again. Windlass creates them at the
    /// desired revision.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scaled_to_zero: bool,
    /// The progress while Windlass creates the nodes of a fleet for the first time, or after it was
    /// scaled to 0. This is not a rollout, but it can stall like one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_fill: Option<ProgressClock>,
    /// The policy that Windlass has applied to every node and to the fleet's Service; absent until it
    /// has done so. If the spec requires Retain, do not delete the fleet before this field is Retain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// The policy that Windlass has applied to every volume claim; absent until it has done so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub volume_claim_retention: Option<ClaimRetention>,
    /// The `unsafeCustomBuildID` of the active set; absent if generated.
    #[serde(rename = "activeBuildID", skip_serializing_if = "String::is_empty")]
    pub active_build_id: String,
    /// retiring lists the sets of nodes that are neither active nor part of a rollout, and that Windlass will remove;
    /// at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<RetiringSet>,
    /// The active rollout; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The current plan of this fleet, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// hooks lists the hooks that failed or wait for approval, in the plans of the fleet and of its nodes; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// The last retry of failed hooks. It is present as long as the annotation `windlass.dev/retry`
    /// requests it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_retry: Option<HookRetry>,
    /// history lists the last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// conditions are `Ready`, `UpToDate`, `RolloutInProgress`, `Stalled` and `Reconciling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl NodeDeploymentStatus {
    /// `lastCompletedRolloutHash`; `None` before the first completion.
    #[must_use]
    pub fn last_completed(&self) -> Option<RolloutHash> {
        RolloutHash::recorded(self.last_completed_rollout_hash.as_str())
    }

    /// The build ID of the active set, if a user chose one.
    #[must_use]
    pub fn active_build_id(&self) -> Option<BuildId> {
        BuildId::recorded(self.active_build_id.as_str())
    }

    /// `restartedAt`: the latest accepted restart.
    #[must_use]
    pub fn restarted_at(&self) -> Option<RestartTime> {
        RestartTime::recorded(self.restarted_at.as_str())
    }

    /// `activeSet`; `None` if it was never written.
    #[must_use]
    pub fn active_set(&self) -> Option<SetName> {
        SetName::recorded(self.active_set.as_str())
    }
}

/// A template that differs in form from that of a revision, for example by written-out defaults. The API server stores
/// the same content for both, so it is not a new target.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SameContent {
    /// The rollout hash of the template as written in the spec.
    pub written_hash: String,
    /// The rollout hash of the recorded revision. All other fields use this hash.
    pub recorded_hash: String,
}

/// A hook that failed or waits for approval.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookStatus {
    /// The name of the hook.
    pub hook: String,
    /// The node whose plan contains the hook; absent if it is in the fleet's plan.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The ID of the task that runs the hook.
    #[serde(rename = "taskID")]
    pub task_id: String,
    /// state is `Failed` or `AwaitingApproval`.
    pub state: String,
    /// The reason why the hook failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The state of a hook that needs a user's attention.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
pub enum HookState {
    /// It failed.
    Failed,
    /// It waits for a user's approval.
    AwaitingApproval,
}

/// The maximum number of hooks in a status.
pub const HOOKS_LIMIT: usize = 20;

/// A retry of failed hooks.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookRetry {
    /// The value of the annotation `windlass.dev/retry` that requested the retry. Windlass acts on each
    /// value once.
    pub request: String,
    /// tasks lists the tasks that had failed at that time and run again, each with its attempt: `TASK/ATTEMPT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
}

/// The progress clock of a rollout, or of a fleet whose nodes are created without one.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressClock {
    /// The last time at which a node was updated or became ready, or the time at which the fill
    /// began.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_progress_at: DateTime<Utc>,
    /// The highest sum so far of updated nodes and updated nodes that are available. A higher sum is
    /// progress.
    #[serde(default)]
    pub max_updated: i32,
    /// The highest number so far of updated nodes that are Ready, available or not. A higher number is
    /// progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ready: Option<i32>,
    /// The desired number of nodes for which `maxUpdated` and `maxReady` were recorded.
    #[serde(default)]
    pub total: i32,
    /// True while the progress deadline is suspended, because the fleet is paused or a hook runs or
    /// has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress_paused: bool,
    /// The time since which the progress deadline does not count, because a node is within a period
    /// that Kubernetes or `minReadySeconds` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_counted_since: Option<DateTime<Utc>>,
}

/// A request that a user made with the command line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastRequest {
    /// The verb: pause, resume, restart, abort, retry, skip, approve, promote or rollback.
    pub verb: String,
    /// The user name that the API server reports.
    pub by: String,
    /// The user's reason; empty if none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The time of the request.
    pub at: DateTime<Utc>,
    /// The rollback that was requested last, by this verb or before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RequestedRollback>,
}

/// A rollback of the template to an earlier revision, requested with the command line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RequestedRollback {
    /// The revision's name.
    pub to: String,
    /// The user name that the API server reports.
    pub by: String,
    /// The time of the request.
    pub at: DateTime<Utc>,
    /// The ID of the fleet's plan at that time; empty if there was none.
    #[serde(default, rename = "planID")]
    pub plan_id: String,
}

impl LastRequest {
    /// The text for the history, for example `abort by alice: disk full`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        cut(&format!("{} by {}{why}", self.verb, self.by), MAX_ASKED_BYTES)
    }
}

/// A target that Windlass does not try again without a request.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejected {
    /// The rollout hash of the target.
    pub hash: String,
    /// The build ID of the target.
    #[serde(rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The ID of the plan that ended with this outcome. A retry names it.
    #[serde(rename = "planID")]
    pub plan_id: String,
    /// outcome is `Aborted`, `RolledBack` or `Failed`.
    pub outcome: String,
    /// The cause of the rollback, since the nodes that caused it may no longer exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Rejected {
    /// The plan whose end led to the rejection; a retry names it.
    #[must_use]
    pub fn plan(&self) -> Option<PlanId> {
        PlanId::recorded(self.plan_id.as_str())
    }

    /// How that plan ended; `None` if this version does not know the value.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.outcome.parse().ok()
    }
}

/// A set of nodes that is neither active nor part of a rollout.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetiringSet {
    /// The name of the set: the value of the label `windlass.dev/set`.
    pub set: String,
    /// The rollout hash that the set last completed, or was created for.
    #[serde(default)]
    pub hash: String,
    /// The `unsafeCustomBuildID` of the set; absent if its build ID was generated.
    #[serde(default, rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The time since which the set has been retiring. Windlass removes its nodes `retireDelaySeconds` later,
    /// or at once if the set never received traffic.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: DateTime<Utc>,
    /// True if the rollout of this set was cancelled before its promotion. Windlass removes its nodes at
    /// once, unless `served` is true. Its volume claims stay under any `volumeClaimRetention`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpromoted: bool,
    /// True if an unpromoted set received traffic earlier. Its removal delay counts from the time at which it
    /// stopped receiving traffic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The height at which the nodes of this set halted (HardFork). They do not receive traffic again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub halt_height: i64,
}

impl RetiringSet {
    /// The build ID of the set, if a user chose one.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::recorded(self.build_id.as_str())
    }

    /// True if it has received traffic.
    #[must_use]
    pub fn has_served(&self) -> bool {
        !self.unpromoted || self.served
    }

    /// True if its purpose is not recorded: the status has lost the rollout that created it.
    #[must_use]
    pub fn is_stray(&self) -> bool {
        self.hash.is_empty() && !self.unpromoted
    }

    /// True if its volume claims stay under any policy: its rollout was cancelled before its promotion, or its purpose
    /// is unknown.
    #[must_use]
    pub fn keeps_claims(&self) -> bool {
        self.unpromoted || self.hash.is_empty()
    }
}
/// The maximum number of sets that wait for their removal. Beyond it, the oldest ones are removed at once.
pub const RETIRING_LIMIT: usize = 20;
