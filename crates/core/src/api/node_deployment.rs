//! NodeDeployment: a fleet of nodes from one template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policies::{DeletionPolicy, DisruptionBudget};
use super::{
    BuildId, Hook, LastNodes, NodeDeploymentStatus, Port, Predecessor, StatefulNodeSpec, Topology,
    UpdateOrder, Window,
};

/// The desired state of a fleet: its nodes, and how a change to them rolls out.
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
    doc = "NodeDeployment is a fleet of stateful nodes from one template, with staged rollouts of changes.",
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
    /// The desired number of nodes: 0 to 10000. Defaults to 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: i32,
    /// The number of seconds for which a node must be Ready before it counts as available. Until
    /// then, it counts against the wave. Defaults to 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_ready_seconds: i64,
    /// template describes the nodes of this fleet.
    pub template: NodeTemplate,
    /// updateStrategy determines how a change to the template rolls out.
    pub update_strategy: UpdateStrategy,
    /// service adds a Service with the name of the fleet, which sends traffic to the active set of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// The build ID, in place of a generated one. It identifies a set of nodes. Under the same ID, a
    /// changed template updates the active set in place. Not allowed with InPlace.
    #[serde(default, rename = "unsafeCustomBuildID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub unsafe_custom_build_id: String,
    /// The rollout hash to promote, as in `status.requestedRolloutHash`. Windlass then promotes the new
    /// nodes as soon as they run, without waiting until they have caught up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub force_promote: String,
    /// paused stops a rollout before its next step; updates that were already granted finish. The rollout continues
    /// when paused is false again. Defaults to false.
    #[serde(default)]
    pub paused: bool,
    /// The policy for the nodes when the fleet is deleted. Delete deletes them. Retain keeps
    /// them and their volumes. Defaults to Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Whether Windlass creates a PodDisruptionBudget with `minAvailable` = `replicas` - `maxUnavailable`.
    /// Defaults to Managed.
    #[serde(default)]
    pub disruption_budget: DisruptionBudget,
    /// creation determines how nodes are created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// The number of unreferenced revisions to keep. Defaults to 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: i32,
}

/// How the nodes of a fleet are created.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation {
    /// The maximum number of nodes that exist and were never Ready, or whose hooks at `AfterCreate` are not done: more are created once
    /// some of these are Ready. It applies to the
    /// first creation, to more replicas and to new sets of nodes, and not to nodes that were lost or to HardFork. If nodes become Ready
    /// only together, it must not be lower than that number. Defaults to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 1, max = 10_000))]
    pub max_initializing: Option<i32>,
}

/// A description of the nodes of a fleet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// metadata contains labels and annotations for the child objects (StatefulNode, StatefulSet, Service). They are
    /// never set on pods.
    #[serde(default, skip_serializing_if = "TemplateMeta::is_empty")]
    pub metadata: TemplateMeta,
    /// The spec of a StatefulNode. The fields `grantedHash`, `grantID`, `haltHeight`, `haltTaskID`,
    /// `watchSidecar` and `suspend` are not allowed.
    pub spec: NodeTemplateSpec,
}

/// The spec of a StatefulNode as a template.
pub type NodeTemplateSpec = StatefulNodeSpec;

/// Labels and annotations for the child objects.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// labels are set on the child objects.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// annotations are set on the child objects.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl TemplateMeta {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// How a change to the template rolls out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
pub struct UpdateStrategy {
    /// The strategy. InPlace updates the existing nodes in waves. BlueGreen creates new nodes, which take over
    /// from the old ones; HardFork also halts the old nodes at a height first.
    // A string, not an enum: an object stored with an empty type has to stay readable.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["InPlace", "BlueGreen", "HardFork"]))]
    pub type_: String,
    /// inPlace contains the settings of the strategy InPlace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceStrategy>,
    /// blueGreen contains the settings of the strategy BlueGreen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blue_green: Option<BlueGreenStrategy>,
    /// hardFork contains the settings of the strategy HardFork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_fork: Option<HardForkStrategy>,
    /// The number of seconds without progress after which a rollout is stalled. Defaults
    /// to 600.
    #[serde(default = "super::stateful_node::default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: i64,
    /// The action when a rollout is stalled. Hold reports the stall and keeps trying. Rollback
    /// returns to the last completed revision. Defaults to Hold.
    #[serde(default)]
    pub on_stall: OnStall,
    /// hooks lists user-defined steps of a rollout; at most 16. A change takes effect at once and starts no rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
    /// windows lists the times during which rollouts may update nodes; at most 16. Without it, they may at any time. Repairs of
    /// failed nodes, drains and rollbacks do not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// after lists objects of this namespace that have to be up to date before a rollout begins; at most 16. If this object
    /// has the annotation `windlass.dev/release`, they need the same value of it, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub after: Vec<Predecessor>,
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

/// The update strategies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StrategyType {
    /// Windlass updates the existing nodes in waves.
    InPlace,
    /// Windlass creates new nodes, which take over from the old ones.
    BlueGreen,
    /// Windlass halts the old nodes at a height before the new ones take over.
    HardFork,
}

/// When new nodes take over from old ones.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Promotion {
    /// As soon as the new nodes are ready.
    #[default]
    WhenReady,
    /// When a user promotes the new nodes.
    Manual,
    /// At once: Windlass removes the old nodes first.
    Immediately,
}

/// The default of `blueGreen.retireDelaySeconds`.
pub const DEFAULT_RETIRE_DELAY_SECONDS: i64 = 30;

/// The settings of the strategy InPlace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceStrategy {
    /// The maximum number of nodes that may be unavailable during a rollout:
    /// an absolute number, or a percentage of `replicas` (rounded down, at least 1). Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// The lowest ordinal that is updated. Nodes with lower ordinals keep the current revision. Defaults
    /// to 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub partition: i32,
    /// Absolute numbers or percentages of nodes, in ascending order; at most 10. After each step, the
    /// rollout waits for the hooks at AfterStep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::steps")]
    pub steps: Vec<IntOrString>,
    /// topology keeps unavailable nodes within few failure domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// order determines which nodes are updated last. Nodes that are unavailable are always updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<UpdateOrder>,
}

/// The settings of the strategy BlueGreen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreenStrategy {
    /// When the new nodes take over. WhenReady: as soon as they are ready. Manual: when
    /// `forcePromote` requests it. Immediately: Windlass removes the old nodes first, which causes downtime. Defaults
    /// to WhenReady.
    #[serde(default = "when_ready")]
    #[schemars(extend("enum" = ["WhenReady", "Manual", "Immediately"]))]
    pub promotion: String,
    /// The number of seconds for which Windlass keeps the old nodes after a promotion. Defaults
    /// to 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0, max = 2_147_483_647), extend("default" = 30))]
    pub retire_delay_seconds: Option<i64>,
}

/// The settings of the strategy HardFork.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardForkStrategy {
    /// The height at which the old nodes halt. It must be greater than 0.
    #[serde(default, skip_serializing_if = "super::fields::is_zero")]
    pub halt_height: i64,
}

/// The reaction to a stalled rollout.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnStall {
    /// Windlass reports the stall and keeps trying.
    #[default]
    Hold,
    /// Windlass returns to the last completed revision.
    Rollback,
}

/// The Service of a fleet, which sends traffic to the active set of nodes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("required" = ["ports"]))]
pub struct ServiceSpec {
    /// ports lists the ports of the Service; at least one.
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

    /// The maximum number of nodes that may be disrupted at once: at least 1. A percentage of `replicas` is rounded
    /// down.
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

    /// The failure domains of the nodes, if it says something about them.
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.update_strategy.in_place.as_ref()?.topology.as_ref()
    }

    /// The nodes that are updated last, if any are.
    #[must_use]
    pub fn last(&self) -> Option<&LastNodes> {
        self.update_strategy.in_place.as_ref()?.order.as_ref()?.last.as_ref()
    }

    /// The number of seconds for which the old nodes are kept after a promotion.
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

    /// The height at which the old nodes halt; 0 if it is not set.
    #[must_use]
    pub fn halt_height(&self) -> i64 {
        self.update_strategy.hard_fork.as_ref().map_or(0, |s| s.halt_height.max(0))
    }

    /// The lowest ordinal that is updated.
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
