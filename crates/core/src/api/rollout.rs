//! The active rollout in a fleet's status.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::fields::is_zero;
use super::ids::{BuildId, RolloutHash, SetName};

/// The active rollout.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// strategy is InPlace, BlueGreen or HardFork.
    #[serde(default)]
    pub strategy: String,
    /// The recipe of the rollout's plans.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recipe: String,
    /// The rollout hash of the target.
    #[serde(default)]
    pub target_hash: String,
    /// The name of the target's ControllerRevision.
    #[serde(default)]
    pub target_revision: String,
    /// The reason for the rollout: one of the reasons of the condition `RolloutInProgress`.
    #[serde(default)]
    pub cause: String,
    /// True if the rollout repairs drift and updates each node to its own revision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_revisions: bool,
    /// The time at which the rollout to this target began.
    #[serde(default)]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: DateTime<Utc>,
    /// The last time at which a node was updated or became ready.
    #[serde(default)]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_progress_at: DateTime<Utc>,
    /// requests lists the last 5 user requests for this rollout, oldest first, for example `abort by alice: disk full`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The highest sum so far of updated nodes and updated nodes that are available. A higher sum is
    /// progress.
    #[serde(default)]
    pub max_updated: i32,
    /// The highest number so far of updated nodes that are Ready, available or not. A higher number is
    /// progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ready: Option<i32>,
    /// True while the progress deadline is suspended, for example during a pause or a hook, or while
    /// the rollout waits for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress_paused: bool,
    /// The time since which the progress deadline does not count, because a node is within a period
    /// that Kubernetes or `minReadySeconds` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_counted_since: Option<DateTime<Utc>>,
    /// The reason why the rollout updates no nodes: Objects, Window, Predecessors (`after`), Turn (`--max-rollouts`) or Person; absent
    /// if there is none. Such a rollout does not count for `--max-rollouts`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// The time at which the next window opens; absent while one is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub window_opens_at: Option<DateTime<Utc>>,
    /// True if a user opened the window of this rollout with `windlass resume --now`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub window_opened: bool,
    /// The current stage of the rollout.
    #[serde(default)]
    pub stage: Stage,
    /// The set of old nodes, which receives traffic until the promotion (BlueGreen, HardFork).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incumbent_set: String,
    /// The set of new nodes, which receives traffic after the promotion (BlueGreen, HardFork).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entrant_set: String,
    /// The time at which the entrant set last stopped receiving traffic; absent if it never
    /// received traffic.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrant_left_service_at: Option<DateTime<Utc>>,
    /// The `unsafeCustomBuildID` of the target (BlueGreen, HardFork).
    #[serde(default, rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The last completed rollout hash when the rollout began.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from_hash: String,
    /// True if a user forced the promotion; set with the stage Promoting (BlueGreen).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// The height at which the old nodes halt; set with the stage Promoting (HardFork).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub halt_height: i64,
    /// The lowest height that the old nodes reported (HardFork).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub height: i64,
    /// nodes contains the numbers of nodes by state.
    #[serde(default)]
    pub nodes: NodeCounts,
    /// unconverged lists the nodes that have not converged, worst first; at most 20.
    #[serde(default, deserialize_with = "readable_items", skip_serializing_if = "Vec::is_empty")]
    pub unconverged: Vec<Unconverged>,
    /// A short text for tables, for example `Updating 2/5`.
    #[serde(default)]
    pub summary: String,
    /// message describes what the rollout waits for.
    #[serde(default)]
    pub message: String,
}

/// Reads a list and drops the items that cannot be read: an item that lacks a field must not make the whole rollout
/// unreadable.
fn readable_items<'de, D: Deserializer<'de>, T: DeserializeOwned>(list: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<serde_json::Value>::deserialize(list)?;
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

impl Rollout {
    /// `targetHash`; [`RolloutHash::lost`] if it is empty.
    #[must_use]
    pub fn target(&self) -> RolloutHash {
        RolloutHash::recorded_or_lost(self.target_hash.as_str())
    }

    /// The set that was active when the rollout began; `None` if the rollout creates no set or the set was not
    /// recorded.
    #[must_use]
    pub fn incumbent(&self) -> Option<SetName> {
        SetName::recorded(self.incumbent_set.as_str())
    }

    /// The build ID of its target, if a user chose one.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::recorded(self.build_id.as_str())
    }

    /// The set that the rollout creates, if any.
    #[must_use]
    pub fn entrant(&self) -> Option<SetName> {
        SetName::recorded(self.entrant_set.as_str())
    }

    /// A rollout that begins now, with all other fields empty.
    #[must_use]
    pub fn begun(now: DateTime<Utc>) -> Self {
        Self {
            strategy: String::new(),
            recipe: String::new(),
            target_hash: String::new(),
            target_revision: String::new(),
            cause: String::new(),
            own_revisions: false,
            started_at: now,
            last_progress_at: now,
            requests: Vec::new(),
            max_updated: 0,
            max_ready: None,
            progress_paused: false,
            waiting_for: String::new(),
            window_opens_at: None,
            window_opened: false,
            not_counted_since: None,
            stage: Stage::default(),
            incumbent_set: String::new(),
            entrant_set: String::new(),
            entrant_left_service_at: None,
            build_id: String::new(),
            from_hash: String::new(),
            forced: false,
            halt_height: 0,
            height: 0,
            nodes: NodeCounts::default(),
            unconverged: Vec::new(),
            summary: String::new(),
            message: String::new(),
        }
    }
}

/// The stage of a rollout.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Stage {
    /// Windlass updates nodes in place.
    #[default]
    Updating,
    /// Windlass creates the new nodes.
    CreatingEntrants,
    /// The rollout waits for the new nodes.
    AwaitingEntrants,
    /// The rollout waits for a user to promote the new nodes.
    AwaitingPromotion,
    /// Windlass moves traffic to the new nodes.
    Promoting,
    /// Windlass removes the old nodes.
    Retiring,
}

/// The numbers of nodes by state. All nodes are counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeCounts {
    /// The desired number of nodes.
    pub total: i32,
    /// The number of nodes observed at the target.
    pub updated: i32,
    /// The number of nodes that are Ready, at any revision.
    pub ready: i32,
    /// The number of nodes that are being updated, missing, terminating or not available.
    pub disrupted: i32,
    /// The number of nodes that cannot run the pod template they were granted.
    pub failed: i32,
}

/// A node that has not converged.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Unconverged {
    /// The name of the node.
    pub name: String,
    /// The kubelet's waiting reason, or one of Windlass's own.
    pub reason: String,
    /// message explains the reason.
    #[serde(default)]
    pub message: String,
    /// The time since which the node has been unavailable. For an available node, it is the time since which
    /// the node waits for the wave.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: DateTime<Utc>,
}

impl Unconverged {
    /// The node, the reason and the message.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}: {}", self.name, self.reason, self.message)
    }
}

/// The maximum number of unconverged nodes in a rollout's status.
pub const UNCONVERGED_LIMIT: usize = 20;
