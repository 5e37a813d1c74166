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

/// What was observed of a fleet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDeploymentStatus {
    /// The generation of the spec that this status was computed for.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// One word for people: Terminating, Paused, Failed, Upgrading, Degraded, Initializing, Ready or Pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// How many nodes exist.
    pub replicas: i32,
    /// How many nodes are Ready.
    pub ready_replicas: i32,
    /// How many nodes were observed at what is wanted.
    pub updated_replicas: i32,
    /// How many nodes have been Ready for `minReadySeconds`.
    pub available_replicas: i32,
    /// The label selector of the active set's pods, for `/scale`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Which set of nodes serves: the value of the label `windlass.dev/set`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub active_set: String,
    /// The ControllerRevision of what last completed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The ControllerRevision of what is wanted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// The build ID of what is wanted.
    #[serde(rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The rollout hash of what is wanted; always set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_rollout_hash: String,
    /// Where the template is written otherwise than a recorded one, and the API server stores the same for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_content: Option<SameContent>,
    /// The rollout hash of what last completed; absent before the first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_completed_rollout_hash: String,
    /// A target that was aborted, rolled back or failed: not tried again until it changes or a retry names the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The `forcePromote` that was already used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spent_force_promote: String,
    /// The latest restart obeyed (RFC 3339).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restarted_at: String,
    /// The last `windlass.dev/last-request` that was taken in, cut to its first 256 bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_request: String,
    /// Set while a fleet that was scaled to 0 fills again: its nodes are created at what is wanted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scaled_to_zero: bool,
    /// While a fleet is filled, for the first time or again from nothing: how far it is. That is no rollout, and stalls as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_fill: Option<InitialFill>,
    /// The `deletionPolicy` that has been carried out on every node and on the fleet's Service; absent while that is under
    /// way. A fleet whose spec says Retain is safe to delete once this does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// The `volumeClaimRetention` that has been carried out on every volume claim; absent while that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub volume_claim_retention: Option<ClaimRetention>,
    /// The `unsafeCustomBuildID` under which the active set was made; absent where it was generated.
    #[serde(rename = "activeBuildID", skip_serializing_if = "String::is_empty")]
    pub active_build_id: String,
    /// Sets of nodes that neither serve nor enter, and since when; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<RetiringSet>,
    /// The active rollout; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What is being done, or was last done, to this fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// The hooks that failed, and those that wait for a person, of the fleet's plan and of its nodes'; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// The last retry of hooks that failed, as long as it is asked for: what of them is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_retry: Option<HookRetry>,
    /// The last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// The conditions `Ready`, `UpToDate`, `RolloutInProgress`, `Stalled` and `Reconciling`.
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

    /// `activeSet`: the set that serves; `None` if it was never written.
    #[must_use]
    pub fn active_set(&self) -> Option<SetName> {
        SetName::recorded(self.active_set.as_str())
    }
}

/// A template that is written otherwise than the one of a revision, for example with the API server's defaults, and of which
/// the API server stores the same: it is no other target.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SameContent {
    /// The rollout hash of the template as it is written.
    pub written_hash: String,
    /// The rollout hash of the revision, which stands for it everywhere else.
    pub recorded_hash: String,
}

/// A hook that somebody has to look at.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookStatus {
    /// Its name.
    pub hook: String,
    /// The node whose plan it stands in; absent where it is the fleet's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The task that carries it out.
    #[serde(rename = "taskID")]
    pub task_id: String,
    /// `Failed` or `AwaitingApproval`.
    pub state: String,
    /// Why it failed, in a sentence.
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

/// A retry of hooks that failed.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookRetry {
    /// The value of the annotation `windlass.dev/retry` that asked for it; it is obeyed once.
    pub request: String,
    /// The tasks that had failed then, each with its attempt: `TASK/ATTEMPT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
}

/// How far a fleet is that is filled without a rollout.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitialFill {
    /// When a node last was updated or became ready, or the first was to be made.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_progress_at: DateTime<Utc>,
    /// The most nodes updated, and available at what is wanted, that were seen at once; progress is more than this.
    #[serde(default)]
    pub max_updated: i32,
    /// The most nodes ready at what is wanted, available or not, that were seen at once; progress is more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ready: Option<i32>,
    /// How many nodes were wanted then.
    #[serde(default)]
    pub total: i32,
    /// Whether its clock stands, since the fleet is paused or a hook lasts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress_paused: bool,
    /// Since when time is not counted, while a node is in a time that Kubernetes or `minReadySeconds` gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_counted_since: Option<DateTime<Utc>>,
}

/// A request that a user made with the command line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastRequest {
    /// The verb: pause, resume, restart, abort, retry, skip, approve, promote or rollback.
    pub verb: String,
    /// The user, as the API server knows them.
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

/// A rollback of a template to a revision with the command line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RequestedRollback {
    /// The revision's name.
    pub to: String,
    /// The user, as the API server knows them.
    pub by: String,
    /// The time of the request.
    pub at: DateTime<Utc>,
    /// The plan that the fleet had then; empty if it had none.
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

/// A target that is not tried again by itself.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejected {
    /// The rollout hash.
    pub hash: String,
    /// The build ID.
    #[serde(rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The plan that ended so; a retry names it.
    #[serde(rename = "planID")]
    pub plan_id: String,
    /// `Aborted`, `RolledBack` or `Failed`.
    pub outcome: String,
    /// What stood in the way when it was rolled back: its nodes may be gone by now.
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

/// A set of nodes that neither serves nor enters.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetiringSet {
    /// The set: the value of the label `windlass.dev/set`.
    pub set: String,
    /// The rollout hash that it last completed, or was made for.
    #[serde(default)]
    pub hash: String,
    /// The `unsafeCustomBuildID` under which it was made; absent where it was generated.
    #[serde(default, rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// Since when; its nodes are removed after `retireDelaySeconds`, or at once where it never served.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: DateTime<Utc>,
    /// Whether it was given up before its promotion: its nodes are removed at once, unless it served before, and its volume
    /// claims stay whatever `volumeClaimRetention` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpromoted: bool,
    /// Whether it served all the same, before it was wanted again and that was given up: it has its delay, counted from
    /// when it left service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The height that its nodes halted at (HardFork); they do not serve again.
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

    /// True if its volume claims stay whatever the policy says: it was abandoned before its promotion, or nobody knows
    /// what it was for.
    #[must_use]
    pub fn keeps_claims(&self) -> bool {
        self.unpromoted || self.hash.is_empty()
    }
}
/// The maximum number of sets that wait for their removal; beyond it, the oldest ones are removed at once.
pub const RETIRING_LIMIT: usize = 20;
