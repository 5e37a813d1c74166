//! StatefulNode: a node of a fleet, or a standalone node.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::is_zero;
use super::history::HistoryEntry;
use super::policies::ClaimRetention;
use super::problem::Problem;
use super::{Condition, GrantId, PodTemplateHash, RawPlan, RemovalId, RestartTime, Shared};

/// One node: a one-replica StatefulSet (`OnDelete`), its headless Service and its volume claims.
#[allow(clippy::duplicated_attributes, reason = "printer columns have fields of the same name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "StatefulNode",
    plural = "statefulnodes",
    shortname = "sn",
    category = "windlass",
    namespaced,
    doc = "One node of a fleet, or one that stands alone.",
    status = "StatefulNodeStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.currentImage"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".status.plan.recipe"),
    printcolumn(name = "Plan-State", type_ = "string", json_path = ".status.plan.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Problem", type_ = "string", json_path = ".status.problem.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct StatefulNodeSpec {
    /// The main container's image; wins over the one in `podTemplate`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The name of the main container: one of `podTemplate.spec.containers`. Default: the first of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub main_container: String,
    /// A whole PodTemplateSpec, passed through untouched.
    #[schemars(schema_with = "super::schema::pod_template")]
    pub pod_template: Shared<Value>,
    /// The node's volume claims, as in a StatefulSet; at most 16.
    #[serde(default, skip_serializing_if = "no_claims")]
    #[schemars(schema_with = "super::schema::volume_claim_templates")]
    pub volume_claim_templates: Shared<Vec<Value>>,
    /// What becomes of the claims when the node itself is deleted. Default: Retain.
    #[serde(default, skip_serializing_if = "ClaimRetention::is_default")]
    #[schemars(extend("default" = "Retain"))]
    pub volume_claim_retention: ClaimRetention,
    /// Ports of the headless Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<Port>,
    /// Annotations of the headless Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// The process next to the main container that keeps the pod out of service until it is marked ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// No progress for this many seconds is a stall. Default: 600.
    #[serde(default = "default_deadline", skip_serializing_if = "is_default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647), extend("default" = 600))]
    pub progress_deadline_seconds: i64,
    /// Scales the StatefulSet to 0, and back when it is false again. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub suspend: bool,
    /// Written by the owning NodeDeployment: the pod template hash that this node may move to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub granted_hash: String,
    /// Written by the owning NodeDeployment: changes with every grant.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "grantID")]
    #[schemars(length(max = 128))]
    pub grant_id: String,
    /// Written by the owning NodeDeployment: the height at which the sidecar is asked to halt the node; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub halt_height: i64,
    /// Written by the owning NodeDeployment: the ID under which the sidecar is asked to halt the node.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "haltTaskID")]
    #[schemars(length(max = 128))]
    pub halt_task_id: String,
    /// Written by the owning NodeDeployment: whether `status.sidecar` is kept up to date.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watch_sidecar: bool,
    /// Written by the owning NodeDeployment: the node is asked to leave, by a plan `RemoveNode`. Another value is another
    /// wish; empty, the node stays.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "removalID")]
    #[schemars(length(max = 128))]
    pub removal_id: String,
}

impl StatefulNodeSpec {
    /// `grantedHash`; `None` if the node updates without a grant.
    #[must_use]
    pub fn granted(&self) -> Option<PodTemplateHash> {
        PodTemplateHash::recorded(self.granted_hash.as_str())
    }

    /// `grantID`; `None` for a node that was just created, or that updates without a grant.
    #[must_use]
    pub fn grant_id(&self) -> Option<GrantId> {
        GrantId::recorded(self.grant_id.as_str())
    }

    /// `removalID`; `None` if the node is not asked to leave.
    #[must_use]
    pub fn removal_id(&self) -> Option<RemovalId> {
        RemovalId::recorded(self.removal_id.as_str())
    }

    /// True if the sidecar is polled, because something waits for its answers.
    #[must_use]
    pub fn asks_sidecar(&self) -> bool {
        self.sidecar.is_some() && (self.watch_sidecar || self.halt_height > 0)
    }

    /// True if there is a sidecar, in the pod or at a URL.
    #[must_use]
    pub fn has_sidecar_to_ask(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|sidecar| sidecar.is_injected() || !sidecar.url.is_empty())
    }
}

/// The process that marks a node ready. With an image it is injected next to the main container, as a native sidecar;
/// with a URL alone nothing is injected, and whoever answers there is the node's sidecar.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// The sidecar's image; there is no default. Without one nothing is injected, and `url` says whom to ask.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The port that it listens on. Default: 7777.
    #[serde(default = "default_sidecar_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The container's resources, as in a pod.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "super::schema::raw_object")]
    pub resources: Value,
    /// Arguments after Windlass's own (`sidecar --bind 0.0.0.0:{port}`): `--height-url`, `--caught-up-url` and
    /// `--token-file` are those of `windlass sidecar`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args: Vec<String>,
    /// The container's environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::env")]
    pub env: Vec<Value>,
    /// The container's volume mounts, as in a pod: of volumes in `podTemplate`, or of claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::volume_mounts")]
    pub volume_mounts: Vec<Value>,
    /// The container's security context, as in a pod: a field that is set here replaces Windlass's own. That is what the Pod
    /// Security level "restricted" asks for, and a read-only root: `allowPrivilegeEscalation: false`, `capabilities: {drop:
    /// [ALL]}`, `readOnlyRootFilesystem: true`, `runAsNonRoot: true` (unless the pod runs as user 0) and `seccompProfile:
    /// {type: RuntimeDefault}`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "super::schema::raw_object")]
    pub security_context: Value,
    /// Where it is reached: a template with `{name}`, `{namespace}`, `{port}`, `{podIP}`.
    /// Default: `http://{podIP}:{port}`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub url: String,
    /// The name of the Secret, in the node's namespace, whose key `token` is the bearer token for the operator's
    /// POSTs to the sidecar. Default: none is sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub token_secret: String,
}

impl Sidecar {
    /// True if it is a container of the pod. Otherwise it is reached by its URL and is not part of a revision.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        !self.image.is_empty()
    }
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The port's name; needed where there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub name: String,
    /// The port that the Service exposes: 1 to 65535.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The container's port, by number or name. Default: `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::int_or_string")]
    pub target_port: Option<IntOrString>,
    /// `TCP`, `UDP` or `SCTP`. Default: TCP.
    // The API server fills in no default: inside a list, it would show up as a difference from what was applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["TCP", "UDP", "SCTP"]))]
    pub protocol: String,
}

/// What was observed of a node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulNodeStatus {
    /// The generation of the spec that this status was computed for.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// One word for people: Terminating, Suspended, Failed, Updating, Running, Initializing or Pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The image of the running pod's main container, as its spec says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_image: String,
    /// The pod template hash that the running pod was observed at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_template_hash: String,
    /// The pod that `currentImage` and `podTemplateHash` were observed on.
    #[serde(skip_serializing_if = "String::is_empty", rename = "podUID")]
    pub pod_uid: String,
    /// Whether the main container of the pod runs although the pod is not Ready. Absent where it does not run, and while
    /// the node is Ready, where it always does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pod_runs: bool,
    /// The grant that this node has converged to.
    #[serde(skip_serializing_if = "String::is_empty", rename = "spentGrantID")]
    pub spent_grant_id: String,
    /// The node's StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful_set: Option<StatefulSetRef>,
    /// The latest restart (`windlass.dev/restartedAt`) that this node obeyed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restarted_at: String,
    /// When the node's pod was first seen Ready; absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_ready_at: Option<DateTime<Utc>>,
    /// When a plan last began because somebody else had changed the StatefulSet's pod template under the node's running pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub edit_found_at: Option<DateTime<Utc>>,
    /// Whether it is not known yet, or could not be carried out, on every claim of the node what `volumeClaimRetention` says
    /// by the observed generation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub claims_pending: bool,
    /// Why the node does not serve, in the kubelet's or scheduler's words; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What the node's sidecar last said, while the fleet's rollout waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarStatus>,
    /// What is being done, or was last done, to this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// The last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// The conditions `Ready`, `NodeUpdateInProgress`, `SidecarReady`, `Stalled` and `Reconciling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl StatefulNodeStatus {
    /// `podTemplateHash`: what the node was observed to run; `None` if that is not known.
    #[must_use]
    pub fn running(&self) -> Option<PodTemplateHash> {
        PodTemplateHash::recorded(self.pod_template_hash.as_str())
    }

    /// `restartedAt`: the latest accepted restart.
    #[must_use]
    pub fn restarted_at(&self) -> Option<RestartTime> {
        RestartTime::recorded(self.restarted_at.as_str())
    }

    /// `spentGrantID`: the grant that the node last converged to.
    #[must_use]
    pub fn spent_grant_id(&self) -> Option<GrantId> {
        GrantId::recorded(self.spent_grant_id.as_str())
    }
}

/// What a node's sidecar last said.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarStatus {
    /// The pod that said it.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Whether the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height; absent where it is not known. The first that was said, until it is asked to halt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<i64>,
    /// Whether the application has halted at the height it was asked to.
    pub halted: bool,
    /// The task under which it was asked to.
    #[serde(rename = "haltTaskID", skip_serializing_if = "String::is_empty")]
    pub halt_task_id: String,
    /// Why it cannot halt, in the sidecar's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The StatefulSet of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRef {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its `metadata.generation` after Windlass's last write to its spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// What tells its pod template, as the API server made it of Windlass's last write to it, from every other.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template_digest: String,
    /// The last revisions that it was seen to give to pods of templates that Windlass wrote, the newest last; at most 5. A
    /// pod at one of them was made for what its annotations say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
}

/// The maximum number of revisions of its StatefulSet that a node's status keeps.
pub const KNOWN_REVISIONS: usize = 5;

/// The default of every `progressDeadlineSeconds`, in seconds.
pub const DEFAULT_DEADLINE_SECONDS: i64 = 600;

pub(crate) fn default_deadline() -> i64 {
    DEFAULT_DEADLINE_SECONDS
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_default_deadline(seconds: &i64) -> bool {
    *seconds == DEFAULT_DEADLINE_SECONDS
}

#[allow(clippy::ptr_arg, reason = "serde calls it with the field")]
pub(crate) fn no_claims(templates: &Shared<Vec<Value>>) -> bool {
    templates.is_empty()
}

/// The default of `sidecar.port`.
pub const DEFAULT_SIDECAR_PORT: i32 = 7777;

fn default_sidecar_port() -> i32 {
    DEFAULT_SIDECAR_PORT
}
