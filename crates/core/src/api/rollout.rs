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
    /// InPlace, BlueGreen or HardFork.
    #[serde(default)]
    pub strategy: String,
    /// The recipe of its plans.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recipe: String,
    /// The rollout hash that it goes to.
    #[serde(default)]
    pub target_hash: String,
    /// The ControllerRevision that it goes to.
    #[serde(default)]
    pub target_revision: String,
    /// Why it was started: a reason of the condition `RolloutInProgress`.
    #[serde(default)]
    pub cause: String,
    /// Whether each node is rolled at the revision that it holds, because it drifted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_revisions: bool,
    /// When it began; begins again with a new target.
    #[serde(default)]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: DateTime<Utc>,
    /// When a node was last updated or became ready.
    #[serde(default)]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_progress_at: DateTime<Utc>,
    /// Who asked for it, and for what since it began; the last 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The most nodes updated, and available at the target, that were seen at once; progress is more than this.
    #[serde(default)]
    pub max_updated: i32,
    /// The most nodes ready at the target, available or not, that were seen at once; progress is more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ready: Option<i32>,
    /// Whether its clock stands, since it waits for a person or for nodes to be wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress_paused: bool,
    /// Since when time is not counted, while a node is in a time that Kubernetes or `minReadySeconds` gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_counted_since: Option<DateTime<Utc>>,
    /// Where it is.
    #[serde(default)]
    pub stage: Stage,
    /// The set that serves (BlueGreen, HardFork).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incumbent_set: String,
    /// The set that is to serve (BlueGreen, HardFork).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entrant_set: String,
    /// When the set that is to serve last left service, where it did: one that lived on and is wanted again.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrant_left_service_at: Option<DateTime<Utc>>,
    /// The `unsafeCustomBuildID` of the target (BlueGreen, HardFork).
    #[serde(default, rename = "buildID", skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// The rollout hash that had last completed when it began.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from_hash: String,
    /// Whether a person forced the promotion; set with the stage Promoting (BlueGreen).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// The height at which the incumbents halt; set with the stage Promoting (HardFork).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub halt_height: i64,
    /// The lowest height that an incumbent was seen at (HardFork).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub height: i64,
    /// How many nodes are where.
    #[serde(default)]
    pub nodes: NodeCounts,
    /// The nodes that have not converged, the worst first; at most 20.
    #[serde(default, deserialize_with = "readable_items", skip_serializing_if = "Vec::is_empty")]
    pub unconverged: Vec<Unconverged>,
    /// A few words for a table, for example `Updating 2/5`.
    #[serde(default)]
    pub summary: String,
    /// What it waits for, in a sentence.
    #[serde(default)]
    pub message: String,
}

/// Reads a list without the items that cannot be read: an item that lacks a field must not make the whole rollout
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

    /// The set that was active when it began, if it creates a set and that was recorded.
    #[must_use]
    pub fn incumbent(&self) -> Option<SetName> {
        SetName::recorded(self.incumbent_set.as_str())
    }

    /// The build ID of its target, if a user chose one.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::recorded(self.build_id.as_str())
    }

    /// The set that it creates, if any.
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

/// Where a rollout is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Stage {
    /// Nodes are updated in place.
    #[default]
    Updating,
    /// New nodes are being created.
    CreatingEntrants,
    /// New nodes are waited for.
    AwaitingEntrants,
    /// A person is waited for.
    AwaitingPromotion,
    /// Traffic is being moved.
    Promoting,
    /// Old nodes are being removed.
    Retiring,
}

/// How many nodes are where. Never capped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeCounts {
    /// Wanted.
    pub total: i32,
    /// Observed at the target.
    pub updated: i32,
    /// Ready, at whatever they run.
    pub ready: i32,
    /// In flight, missing, terminating or not available.
    pub disrupted: i32,
    /// That cannot run what they were granted.
    pub failed: i32,
}

/// A node that has not converged.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Unconverged {
    /// The node.
    pub name: String,
    /// The kubelet's waiting reason, or one of Windlass's own.
    pub reason: String,
    /// A sentence.
    #[serde(default)]
    pub message: String,
    /// Since when it does not serve; of one that serves, since when it waits for its turn.
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
