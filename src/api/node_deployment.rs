//! NodeDeployment: a fleet of nodes from one template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NodeDeploymentStatus, Port, StatefulNodeSpec};

/// A fleet: `replicas` nodes from one template, and how a change of it rolls out.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "NodeDeployment",
    plural = "nodedeployments",
    shortname = "nd",
    category = "windlass",
    namespaced,
    status = "NodeDeploymentStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeDeploymentSpec {
    /// How many nodes; 0 to 10000. Default: 1.
    #[serde(default = "one")]
    pub replicas: i32,
    /// A node counts as available, and frees the wave, only after this many seconds Ready. Default: 0.
    #[serde(default)]
    pub min_ready_seconds: i64,
    /// What a node of this fleet is.
    pub template: NodeTemplate,
    /// How a change of the template rolls out.
    pub update_strategy: UpdateStrategy,
    /// A Service named as the fleet, in front of the set of nodes that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Names a set of nodes' identity by hand.
    #[serde(default, rename = "unsafeCustomBuildID", skip_serializing_if = "String::is_empty")]
    pub unsafe_custom_build_id: String,
    /// The rollout hash to promote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub force_promote: String,
    /// Stops before the next effect of a rollout.
    #[serde(default)]
    pub paused: bool,
    /// What becomes of the nodes when the fleet is deleted. Default: Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How many revisions that nothing refers to are kept. Default: 10.
    #[serde(default = "ten")]
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
pub struct UpdateStrategy {
    /// InPlace, BlueGreen or HardFork.
    #[serde(rename = "type", default)]
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
    pub progress_deadline_seconds: i64,
    /// What a stall leads to. Default: Hold.
    #[serde(default)]
    pub on_stall: OnStall,
}

/// The three strategies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StrategyType {
    /// Nodes are updated where they are, in waves.
    InPlace,
    /// New nodes are made beside the old ones and take over.
    BlueGreen,
    /// The old nodes are halted at a height before the new ones take over.
    HardFork,
}

/// Settings of InPlace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceStrategy {
    /// How many nodes may be disrupted at once: a number, or a percentage (rounded down, at least 1). Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Ordinals below it keep the current revision. Default: 0.
    #[serde(default)]
    pub partition: i32,
}

/// Settings of BlueGreen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreenStrategy {
    /// WhenReady, Manual or Immediately. Default: WhenReady.
    #[serde(default)]
    pub promotion: String,
    /// Incumbents live this many seconds after promotion. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire_delay_seconds: Option<i64>,
}

/// Settings of HardFork.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardForkStrategy {
    /// The height at which the old nodes halt; above 0.
    #[serde(default)]
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

/// What becomes of the nodes when the fleet is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// They go with it.
    #[default]
    Delete,
    /// They live on.
    Retain,
}

/// The Service in front of the set of nodes that serves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ServiceSpec {
    /// The Service's ports.
    #[serde(default)]
    pub ports: Vec<Port>,
}

impl NodeDeploymentSpec {
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

    /// Ordinals below this keep the current revision.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.update_strategy.in_place.as_ref().map_or(0, |s| s.partition.max(0))
    }
}

fn one() -> i32 {
    1
}

fn ten() -> i32 {
    10
}
