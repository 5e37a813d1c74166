//! StatefulSetRollout: safe rollouts for StatefulSets that already run. Windlass decides when each pod moves; everything
//! else about the StatefulSets stays with their owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node_deployment::{InPlaceStrategy, NodeDeploymentSpec, UpdateStrategy};
use super::stateful_node::default_deadline;
use super::{Hook, NodeDeploymentStatus, OnStall, RawPlan};

/// The most StatefulSets that one object may select.
pub const MAX_STATEFUL_SETS: usize = 50;
/// The most pods that are updated at once: each has a plan in the status.
pub const MAX_POD_UPDATES: usize = 20;

/// Which StatefulSets roll out under the control of Windlass, and how.
#[allow(clippy::duplicated_attributes, reason = "printer columns have fields of the same name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "StatefulSetRollout",
    plural = "statefulsetrollouts",
    shortname = "ssr",
    category = "windlass",
    namespaced,
    doc = "Safe rollouts for StatefulSets that already run.",
    status = "StatefulSetRolloutStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Held",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Held\")].status"
    ),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.rollout.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.rollout.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetRolloutSpec {
    /// The StatefulSets, by name or by label. They are in the namespace of this object.
    pub stateful_sets: StatefulSetSelection,
    /// How the pods of these StatefulSets are updated.
    #[serde(default)]
    pub strategy: StatefulSetStrategy,
    /// Stops the rollout before the next pod is updated. The rollout continues when this is false again. Default: false.
    #[serde(default)]
    pub paused: bool,
}

/// Which StatefulSets are selected: exactly one of the two fields.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetSelection {
    /// The names of StatefulSets; at most 50. A StatefulSet that does not exist yet is waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), schema_with = "super::schema::stateful_set_names")]
    pub names: Vec<String>,
    /// A label selector for StatefulSets; it must not be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// How the pods of StatefulSets are updated.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStrategy {
    /// How many pods of all selected StatefulSets may be unavailable at once: a number, or a percentage (rounded down, at
    /// least 1). Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// Together: the pods of all StatefulSets share one wave. OneAtATime: one StatefulSet is finished before the next one
    /// starts, in the order of `names`, or of their names. Default: Together.
    #[serde(default)]
    pub groups: Groups,
    /// Numbers of pods, or percentages, ascending; at most 10. The rollout stops after each until the hooks at `AfterStep`
    /// are done, unless that is all pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::steps")]
    pub steps: Vec<IntOrString>,
    /// Hooks at BeforeRollout, BeforeNode, AfterNode, AfterStep and AfterRollout; at most 16. A change of them applies at
    /// once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
    /// A rollout without progress for this many seconds is stalled. Default: 600.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: i64,
    /// What a stall leads to. Default: Hold.
    #[serde(default)]
    pub on_stall: OnStall,
}

impl Default for StatefulSetStrategy {
    fn default() -> Self {
        Self {
            max_unavailable: None,
            groups: Groups::default(),
            steps: Vec::new(),
            hooks: Vec::new(),
            progress_deadline_seconds: default_deadline(),
            on_stall: OnStall::default(),
        }
    }
}

/// Whether several StatefulSets are updated together.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Groups {
    /// Their pods share one wave.
    #[default]
    Together,
    /// One StatefulSet is finished before the next one starts.
    OneAtATime,
}

/// The observed state of a StatefulSetRollout.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRolloutStatus {
    /// The same as of a NodeDeployment.
    #[serde(flatten)]
    pub rollout: NodeDeploymentStatus,
    /// The selected StatefulSets, in the order in which they are updated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<StatefulSetStatus>,
    /// The pods that are being updated; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<PodUpdate>,
}

/// The observed state of a selected StatefulSet.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// Its name.
    pub name: String,
    /// Its UID; absent while it does not exist.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its `status.currentRevision`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// Its `status.updateRevision`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Its `spec.replicas`.
    pub replicas: i32,
    /// How many of its pods are Ready.
    pub ready: i32,
    /// How many of its pods are at its update revision.
    pub updated: i32,
    /// Whether its update strategy is the one that Windlass wrote, so that nothing but Windlass updates its pods.
    pub held: bool,
}

/// A pod that is being updated.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct PodUpdate {
    /// The pod's name.
    pub name: String,
    /// The UID of the pod that is replaced; empty if there was none when the update began.
    #[serde(rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// The pod's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
}

impl StatefulSetRolloutSpec {
    /// The spec of a fleet of this many nodes that rolls out in the same way.
    #[must_use]
    pub fn as_fleet(&self, replicas: i32) -> NodeDeploymentSpec {
        let StatefulSetStrategy {
            max_unavailable,
            groups: _,
            steps,
            hooks,
            progress_deadline_seconds,
            on_stall,
        } = self.strategy.clone();
        NodeDeploymentSpec {
            replicas,
            paused: self.paused,
            update_strategy: UpdateStrategy {
                type_: "InPlace".to_owned(),
                in_place: Some(InPlaceStrategy { max_unavailable, partition: 0, steps }),
                progress_deadline_seconds,
                on_stall,
                hooks,
                ..UpdateStrategy::default()
            },
            ..NodeDeploymentSpec::default()
        }
    }
}
