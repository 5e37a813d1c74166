//! StatefulSetRollout: safe rollouts for StatefulSets that already run. Windlass decides when each pod is updated; all
//! other fields of the StatefulSets remain with their owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PodMove;
use super::node_deployment::{InPlaceStrategy, NodeDeploymentSpec, UpdateStrategy};
use super::stateful_node::default_deadline;
use super::{Hook, NodeDeploymentStatus, OnStall, Predecessor, RawPlan, Topology, UpdateOrder, Window};

/// The maximum number of StatefulSets that one object may select.
pub const MAX_STATEFUL_SETS: usize = 50;
/// The maximum number of pods that are updated at the same time. Each has a plan in the status.
pub const MAX_POD_UPDATES: usize = 20;

/// The StatefulSets that Windlass rolls out changes to, and how.
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
    doc = "StatefulSetRollout rolls out changes to existing StatefulSets, in waves and with hooks.",
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
    /// statefulSets selects StatefulSets in the namespace of this object, by name or by label.
    pub stateful_sets: StatefulSetSelection,
    /// strategy determines how Windlass updates the pods of the selected StatefulSets.
    #[serde(default)]
    pub strategy: StatefulSetStrategy,
    /// paused stops the rollout before the next pod is updated. The rollout continues when paused is false again.
    /// Defaults to false.
    #[serde(default)]
    pub paused: bool,
}

/// A selection of StatefulSets. Exactly one of its fields must be set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetSelection {
    /// names lists the names of StatefulSets; at most 50. Windlass waits for StatefulSets that do not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), schema_with = "super::schema::stateful_set_names")]
    pub names: Vec<String>,
    /// A label selector for StatefulSets. It must not be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// How Windlass updates the pods of StatefulSets.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStrategy {
    /// The maximum number of pods that may be unavailable during a rollout, over all selected
    /// StatefulSets. Value can be an absolute number or a percentage of all pods, which is rounded down to at least 1.
    /// Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// groups determines the order of several StatefulSets. Together: the pods of all StatefulSets share one wave.
    /// OneAtATime: Windlass finishes one StatefulSet before it starts the next, in the order of `names`, or
    /// alphabetically with a selector. Defaults to Together.
    #[serde(default)]
    pub groups: Groups,
    /// steps lists absolute numbers or percentages of pods, in ascending order; at most 10. After each step, the
    /// rollout waits until the hooks at AfterStep are done. It does not wait after a step that covers all pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::steps")]
    pub steps: Vec<IntOrString>,
    /// topology keeps unavailable pods within few failure domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// order determines which pods are updated last. Pods that are unavailable are always updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<UpdateOrder>,
    /// hooks lists user-defined steps at BeforeRollout, BeforeNode, AfterNode, AfterStep and AfterRollout; at most 16.
    /// A change takes effect at once and starts no rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hooks: Vec<Hook>,
    /// The number of seconds without progress after which a rollout is stalled. Defaults
    /// to 600.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: i64,
    /// The action when a rollout is stalled. Hold reports the stall and keeps trying. Rollback
    /// returns to the last completed revision. Defaults to Hold.
    #[serde(default)]
    pub on_stall: OnStall,
    /// windows lists the times during which rollouts may update pods; at most 16. Without it, they may at any time. Repairs of
    /// failed pods, drains and rollbacks do not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// after lists objects of this namespace that have to be up to date before a rollout begins; at most 16. If this object
    /// has the annotation `windlass.dev/release`, they need the same value of it, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub after: Vec<Predecessor>,
}

impl Default for StatefulSetStrategy {
    fn default() -> Self {
        Self {
            max_unavailable: None,
            groups: Groups::default(),
            steps: Vec::new(),
            topology: None,
            order: None,
            hooks: Vec::new(),
            progress_deadline_seconds: default_deadline(),
            on_stall: OnStall::default(),
            windows: Vec::new(),
            after: Vec::new(),
        }
    }
}

/// Whether several StatefulSets are updated together.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Groups {
    /// The pods of all StatefulSets share one wave.
    #[default]
    Together,
    /// Windlass finishes one StatefulSet before it starts the next.
    OneAtATime,
}

/// The observed state of a StatefulSetRollout.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRolloutStatus {
    /// The fields that a NodeDeployment's status has as well.
    #[serde(flatten)]
    pub rollout: NodeDeploymentStatus,
    /// statefulSets lists the selected StatefulSets, in the order in which Windlass updates them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<StatefulSetStatus>,
    /// nodes lists the pods that are being updated; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<PodUpdate>,
}

/// The observed state of a selected StatefulSet.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The name of the StatefulSet.
    pub name: String,
    /// The UID of the StatefulSet; absent while it does not exist.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The `status.currentRevision` of the StatefulSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The `status.updateRevision` of the StatefulSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// The `spec.replicas` of the StatefulSet.
    pub replicas: i32,
    /// The number of its pods that are Ready.
    pub ready: i32,
    /// The number of its pods that are at the update revision.
    pub updated: i32,
    /// True if the StatefulSet has the update strategy that Windlass wrote, so that only Windlass updates its
    /// pods.
    pub held: bool,
}

/// A pod that is being updated.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct PodUpdate {
    /// The name of the pod.
    pub name: String,
    /// The UID of the pod that is replaced; empty if there was no pod when the update began.
    #[serde(rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// The machine that the pod is moved off; empty if it is updated. The entry stays while that machine is being drained.
    #[serde(rename = "nodeName", skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The plan of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
}

impl PodUpdate {
    /// The move that it is, if it is one.
    #[must_use]
    pub fn as_move(&self) -> Option<PodMove> {
        let is_move = !self.node_name.is_empty();
        is_move.then(|| PodMove { pod_uid: self.pod_uid.clone(), node_name: self.node_name.clone() })
    }
}

impl StatefulSetRolloutSpec {
    /// The spec of a fleet with this number of nodes that rolls out in the same way.
    #[must_use]
    pub fn as_fleet(&self, replicas: i32) -> NodeDeploymentSpec {
        let StatefulSetStrategy {
            max_unavailable,
            groups: _,
            steps,
            topology,
            order,
            hooks,
            progress_deadline_seconds,
            on_stall,
            windows,
            after,
        } = self.strategy.clone();
        NodeDeploymentSpec {
            replicas,
            paused: self.paused,
            update_strategy: UpdateStrategy {
                type_: "InPlace".to_owned(),
                in_place: Some(InPlaceStrategy { max_unavailable, partition: 0, steps, topology, order }),
                progress_deadline_seconds,
                on_stall,
                hooks,
                windows,
                after,
                ..UpdateStrategy::default()
            },
            ..NodeDeploymentSpec::default()
        }
    }
}
