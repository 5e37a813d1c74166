//! NodeDeployment: a fleet of nodes from one template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policies::DeletionPolicy;
use super::{BuildId, Hook, NodeDeploymentStatus, Port, StatefulNodeSpec};

/// A fleet: `replicas` nodes from one template, and how a change of it rolls out.
#[allow(clippy::duplicated_attributes, reason = "printer columns have fields of the same name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "NodeDeployment",
    plural = "nodedeployments",
    shortname = "nd",
    category = "windlass",
    namespaced,
    doc = "A fleet of nodes from one template, and how a change of it rolls out.",
    status = "NodeDeploymentStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.updateStrategy.type"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.rollout.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.rollout.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct NodeDeploymentSpec {
    /// How many nodes; 0 to 10000. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: i32,
    /// A node counts as available, and frees the wave, only after this many seconds Ready. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_ready_seconds: i64,
    /// What a node of this fleet is.
    pub template: NodeTemplate,
    /// How a change of the template rolls out.
    pub update_strategy: UpdateStrategy,
    /// A Service named as the fleet, in front of the set of nodes that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Names the identity of a set of nodes by hand: at most 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
    /// Not with InPlace.
    #[serde(default, rename = "unsafeCustomBuildID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub unsafe_custom_build_id: String,
    /// The rollout hash to promote (see `status.requestedRolloutHash`) without waiting for anything but running nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub force_promote: String,
    /// Stops before the next effect of a rollout, and goes on when it is false again. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// What becomes of the nodes when the fleet is deleted. Default: Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How many revisions that nothing refers to are kept. Default: 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: i32,
}

/// What a node of the fleet is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Labels and annotations of the child objects (node, StatefulSet, Service), never of pods.
    #[serde(default, skip_serializing_if = "TemplateMeta::is_empty")]
    pub metadata: TemplateMeta,
    /// A StatefulNode's spec, without `grantedHash`, `grantID` and `suspend`.
    pub spec: NodeTemplateSpec,
}

/// A StatefulNode's spec as a template.
pub type NodeTemplateSpec = StatefulNodeSpec;

/// Labels and annotations of the child objects.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl TemplateMeta {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// How a change of the template rolls out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
pub struct UpdateStrategy {
    /// InPlace: nodes are updated where they are, in waves. BlueGreen: new nodes are made beside the old ones
    /// and take over. HardFork: the old nodes halt at a height before the new ones take over.
    // A string, not an enum: an object stored with an empty type has to stay readable.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["InPlace", "BlueGreen", "HardFork"]))]
    pub type_: String,
    /// Settings of InPlace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceStrategy>,
    /// Settings of BlueGreen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blue_green: Option<BlueGreenStrategy>,
    /// Settings of HardFork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_fork: Option<HardForkStrategy>,
    /// No progress for this many seconds is a stall. Default: 600.
    #[serde(default = "super::stateful_node::default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: i64,
    /// What a stall leads to. Default: Hold.
    #[serde(default)]
    pub on_stall: OnStall,
    /// Steps of one's own in a rollout; at most 16. A change of them applies at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
}

impl UpdateStrategy {
    /// The strategy; `None` if this version does not know the value. An empty type means InPlace: only an object that
    /// was stored before the type was required has one.
    #[must_use]
    pub fn strategy(&self) -> Option<StrategyType> {
        match self.type_.as_str() {
            "" | "InPlace" => Some(StrategyType::InPlace),
            "BlueGreen" => Some(StrategyType::BlueGreen),
            "HardFork" => Some(StrategyType::HardFork),
            _ => None,
        }
    }
}

/// The three strategies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StrategyType {
    /// Nodes are updated in place, in waves.
    InPlace,
    /// New nodes are created next to the old ones and take over.
    BlueGreen,
    /// The old nodes are halted at a height before the new ones take over.
    HardFork,
}

/// When new nodes take over from old ones.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Promotion {
    /// As soon as they are ready.
    #[default]
    WhenReady,
    /// When a user promotes them.
    Manual,
    /// At once: the old nodes are removed first.
    Immediately,
}

/// The default of `blueGreen.retireDelaySeconds`.
pub const DEFAULT_RETIRE_DELAY_SECONDS: i64 = 30;

/// Settings of InPlace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceStrategy {
    /// How many nodes may be disrupted at once: a number, or a percentage (rounded down, at least 1). Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// Ordinals below it keep the current revision. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub partition: i32,
    /// Numbers of nodes, or percentages, ascending; at most 10. The rollout stops after each until the hooks at `AfterStep`
    /// are done, unless that is all nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::steps")]
    pub steps: Vec<IntOrString>,
}

/// Settings of BlueGreen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreenStrategy {
    /// WhenReady: as soon as the new nodes are ready. Manual: when `forcePromote` says so. Immediately: the old
    /// nodes go first, which is downtime. Default: WhenReady.
    #[serde(default = "when_ready")]
    #[schemars(extend("enum" = ["WhenReady", "Manual", "Immediately"]))]
    pub promotion: String,
    /// Incumbents live this many seconds after promotion. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0, max = 2_147_483_647), extend("default" = 30))]
    pub retire_delay_seconds: Option<i64>,
}

/// Settings of HardFork.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardForkStrategy {
    /// The height at which the old nodes halt; above 0.
    #[serde(default, skip_serializing_if = "super::fields::is_zero")]
    pub halt_height: i64,
}

/// What a stall leads to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnStall {
    /// Hold, say so, and go on trying.
    #[default]
    Hold,
    /// Roll back to the last completed revision.
    Rollback,
}

/// The Service in front of the set of nodes that serves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("required" = ["ports"]))]
pub struct ServiceSpec {
    /// The Service's ports; at least one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<Port>,
}

impl NodeDeploymentSpec {
    /// `unsafeCustomBuildID`; `None` if the build ID is generated.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::recorded(self.unsafe_custom_build_id.as_str())
    }

    /// How many nodes may be disrupted at once: at least 1, percentages of `replicas` rounded down.
    #[must_use]
    pub fn max_unavailable(&self) -> i32 {
        let wanted = match self.update_strategy.in_place.as_ref().and_then(|s| s.max_unavailable.as_ref()) {
            Some(IntOrString::Int(n)) => *n,
            Some(IntOrString::String(text)) => text
                .strip_suffix('%')
                .and_then(|percent| percent.parse::<i64>().ok())
                .map_or(1, |percent| (i64::from(self.replicas) * percent / 100) as i32),
            None => 1,
        };
        wanted.max(1)
    }

    /// How long the old nodes are kept after a promotion, in seconds.
    #[must_use]
    pub fn retire_delay_seconds(&self) -> i64 {
        let asked = self.update_strategy.blue_green.as_ref().and_then(|s| s.retire_delay_seconds);
        asked.unwrap_or(DEFAULT_RETIRE_DELAY_SECONDS).max(0)
    }

    /// When new nodes take over; the default if this version does not know the value.
    #[must_use]
    pub fn promotion(&self) -> Promotion {
        match self.update_strategy.blue_green.as_ref().map(|s| s.promotion.as_str()) {
            Some("Manual") => Promotion::Manual,
            Some("Immediately") => Promotion::Immediately,
            _ => Promotion::WhenReady,
        }
    }

    /// The height at which old nodes halt; 0 if none is given.
    #[must_use]
    pub fn halt_height(&self) -> i64 {
        self.update_strategy.hard_fork.as_ref().map_or(0, |s| s.halt_height.max(0))
    }

    /// Ordinals below this keep the current revision.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.update_strategy.in_place.as_ref().map_or(0, |s| s.partition.max(0))
    }
}

fn one() -> i32 {
    1
}

fn when_ready() -> String {
    "WhenReady".to_owned()
}

fn ten() -> i32 {
    10
}
