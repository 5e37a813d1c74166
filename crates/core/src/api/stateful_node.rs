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
use super::{Auth, Condition, GrantId, PodTemplateHash, RawPlan, RemovalId, RestartTime, Shared, Tls};

/// The desired state of a node: a StatefulSet with one replica (`OnDelete`), its headless Service and its volume
/// claims.
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
    doc = "StatefulNode is a node of a fleet, or a standalone node.",
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
    /// The image of the main container. It overrides the image in `podTemplate`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The name of the main container in `podTemplate.spec.containers`. Defaults to the first
    /// container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub main_container: String,
    /// A PodTemplateSpec. Windlass passes all its fields through unchanged, including fields that it
    /// does not know.
    #[schemars(schema_with = "super::schema::pod_template")]
    pub pod_template: Shared<Value>,
    /// volumeClaimTemplates lists the volume claims of the node, as in a StatefulSet; at most 16.
    #[serde(default, skip_serializing_if = "no_claims")]
    #[schemars(schema_with = "super::schema::volume_claim_templates")]
    pub volume_claim_templates: Shared<Vec<Value>>,
    /// The policy for volume claims when the node is deleted. Retain keeps them.
    /// Delete deletes them with the node. Defaults to Retain.
    #[serde(default, skip_serializing_if = "ClaimRetention::is_default")]
    #[schemars(extend("default" = "Retain"))]
    pub volume_claim_retention: ClaimRetention,
    /// ports lists the ports of the headless Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<Port>,
    /// serviceAnnotations are set on the headless Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// sidecar configures the process next to the main container that keeps the pod out of service until Windlass marks
    /// the node as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// The number of seconds without progress after which the node's plan is stalled.
    /// Defaults to 600.
    #[serde(default = "default_deadline", skip_serializing_if = "is_default_deadline")]
    #[schemars(range(min = 1, max = 2_147_483_647), extend("default" = 600))]
    pub progress_deadline_seconds: i64,
    /// suspend scales the StatefulSet to 0 while it is true. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub suspend: bool,
    /// The pod template hash that this node may move to. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub granted_hash: String,
    /// grantID identifies the grant and changes with each grant. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "grantID")]
    #[schemars(length(max = 128))]
    pub grant_id: String,
    /// The height at which the sidecar must halt the node; 0 for none. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub halt_height: i64,
    /// The task ID of the request to halt, which Windlass sends to the sidecar. The owning NodeDeployment
    /// sets it.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "haltTaskID")]
    #[schemars(length(max = 128))]
    pub halt_task_id: String,
    /// watchSidecar makes Windlass poll the sidecar and update `status.sidecar`. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watch_sidecar: bool,
    /// Requests the removal of the node, with a plan RemoveNode. Each value is a separate request; if it is
    /// empty, the node stays. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "removalID")]
    #[schemars(length(max = 128))]
    pub removal_id: String,
    /// The pod to move to another machine, with a plan MoveNode. The owning NodeDeployment sets it.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "move")]
    pub move_: Option<PodMove>,
    /// The sizes of volume claims that have grown since the node was created, by the names in
    /// `volumeClaimTemplates`. The owning NodeDeployment sets them; for a standalone node, set them here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub claim_sizes: BTreeMap<String, String>,
}

/// A request to move a pod off the machine that it runs on.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMove {
    /// The UID of the pod. A later pod of the same name is not moved.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// The name of the machine, a Kubernetes Node.
    #[schemars(length(max = 253))]
    pub node_name: String,
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

    /// `removalID`; `None` if no removal is requested.
    #[must_use]
    pub fn removal_id(&self) -> Option<RemovalId> {
        RemovalId::recorded(self.removal_id.as_str())
    }

    /// True if Windlass polls the sidecar, because a rollout waits for its answers.
    #[must_use]
    pub fn watches_sidecar(&self) -> bool {
        self.sidecar.is_some() && (self.watch_sidecar || self.halt_height > 0)
    }

    /// True if there is a sidecar, in the pod or at a URL.
    #[must_use]
    pub fn has_sidecar_address(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|sidecar| sidecar.is_injected() || !sidecar.url.is_empty())
    }
}

/// The process that marks a node as ready. With an image, Windlass injects it next to the main container as a native
/// sidecar. With only a URL, Windlass injects nothing and uses the server at that URL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// The image of the sidecar and has no default. Without an image, Windlass injects no container and sends
    /// its requests to `url`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The port that the sidecar listens on. Defaults to 7777.
    #[serde(default = "default_sidecar_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The container's resources, as in a pod.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "super::schema::raw_object")]
    pub resources: Value,
    /// args are appended to the arguments `sidecar --bind 0.0.0.0:{port}`. `windlass sidecar` also accepts
    /// `--height-url`, `--caught-up-url` and `--token-file`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args: Vec<String>,
    /// env lists the container's environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::env")]
    pub env: Vec<Value>,
    /// volumeMounts lists the container's volume mounts, as in a pod. They refer to volumes in `podTemplate` or to
    /// volume claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::volume_mounts")]
    pub volume_mounts: Vec<Value>,
    /// The container's security context, as in a pod. Fields that are set here replace Windlass's
    /// own, which meet the Pod Security level "restricted": `allowPrivilegeEscalation: false`, `capabilities: {drop:
    /// [ALL]}`, `readOnlyRootFilesystem: true`, `runAsNonRoot: true` (unless the pod runs as user 0) and
    /// `seccompProfile: {type: RuntimeDefault}`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "super::schema::raw_object")]
    pub security_context: Value,
    /// The address of the sidecar: a template with the placeholders `{name}`, `{namespace}`, `{port}` and
    /// `{podIP}`. Defaults to `http://{podIP}:{port}`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub url: String,
    /// The name of a Secret in the node's namespace. Its key `token` contains the bearer token for the
    /// operator's POST requests to the sidecar. Defaults to no token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub token_secret: String,
    /// The TLS settings of an `https://` url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tls")]
    pub tls: Option<Tls>,
    /// The credentials of all requests, in place of `tokenSecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Auth")]
    pub auth: Option<Auth>,
}

impl Sidecar {
    /// True if the sidecar is a container of the pod. Otherwise Windlass reaches it by its URL, and it is not part of a
    /// revision.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        !self.image.is_empty()
    }
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The name of the port; required if the Service has several ports.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub name: String,
    /// The port that the Service exposes: 1 to 65535.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The number or name of the container's port. Defaults to `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::int_or_string")]
    pub target_port: Option<IntOrString>,
    /// protocol is `TCP`, `UDP` or `SCTP`. Defaults to TCP.
    // The API server fills in no default: inside a list, it would show up as a difference from what was applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["TCP", "UDP", "SCTP"]))]
    pub protocol: String,
}

/// The observed state of a node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulNodeStatus {
    /// The generation of the spec that this status is based on.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// A one-word summary: Terminating, Suspended, Failed, Updating, Running, Initializing or Pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The image of the running pod's main container, as specified in the template that the pod was
    /// created from. It is empty while it is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_image: String,
    /// The observed hash of the template that the running pod was created from. It is empty while it
    /// is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_template_hash: String,
    /// The UID of the pod on which `currentImage` and `podTemplateHash` were observed.
    #[serde(skip_serializing_if = "String::is_empty", rename = "podUID")]
    pub pod_uid: String,
    /// True if the pod's main container runs but the pod is not Ready. It is absent while the container does
    /// not run or the node is Ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pod_runs: bool,
    /// The ID of the last grant that this node converged to.
    #[serde(skip_serializing_if = "String::is_empty", rename = "spentGrantID")]
    pub spent_grant_id: String,
    /// statefulSet identifies the node's StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful_set: Option<StatefulSetRef>,
    /// The latest value of the annotation `windlass.dev/restartedAt` that Windlass accepted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restarted_at: String,
    /// The time at which the node's pod was first observed as Ready; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_ready_at: Option<DateTime<Utc>>,
    /// The last time at which a plan began because another client had changed the StatefulSet's pod
    /// template while the node was Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub edit_found_at: Option<DateTime<Utc>>,
    /// True while it is unknown, or not yet the case, that the observed generation's
    /// `volumeClaimRetention` is applied to all volume claims of the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub claims_pending: bool,
    /// The reason why the node is not ready, as reported by the kubelet, the scheduler or Windlass; absent
    /// while the node is ready or suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The last answer of the node's sidecar. It is present while the fleet's rollout waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarStatus>,
    /// The current plan of this node, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// history lists the last 10 plans that ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// conditions are `Ready`, `NodeUpdateInProgress`, `SidecarReady`, `Stalled` and `Reconciling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl StatefulNodeStatus {
    /// `podTemplateHash`: the hash that the node was observed to run; `None` if it is unknown.
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

/// The last answer of a node's sidecar.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarStatus {
    /// The UID of the pod whose sidecar answered.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// True if the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height; absent while it is unknown. Until Windlass requests a halt, this is the
    /// first height that the sidecar reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<i64>,
    /// The application's role, for example `primary`; absent while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// True if the application has halted at the requested height.
    pub halted: bool,
    /// The task ID of the request to halt.
    #[serde(rename = "haltTaskID", skip_serializing_if = "String::is_empty")]
    pub halt_task_id: String,
    /// The reason why the application cannot halt, as reported by the sidecar.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A reference to the StatefulSet of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRef {
    /// The name of the StatefulSet.
    pub name: String,
    /// The UID of the StatefulSet.
    pub uid: String,
    /// The StatefulSet's `metadata.generation` after Windlass last wrote its spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// A digest of the StatefulSet's pod template, as the API server stored it after Windlass last
    /// wrote it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template_digest: String,
    /// revisions lists the last StatefulSet revisions of pod templates that Windlass wrote, newest last; at most 5.
    /// Windlass trusts the annotations of a pod at one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
}

/// The maximum number of StatefulSet revisions in a node's status.
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
