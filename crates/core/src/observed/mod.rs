//! The objects in the caches: of each, only what decisions need.

mod key;
mod meta;
mod pod;
mod requests;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::api::{
    BuiltFor, IntOrString, JsonText, NodeDeploymentSpec, NodeDeploymentStatus, PodTemplateHash, Shared,
    StatefulNodeSpec, StatefulNodeStatus, StatefulSetRolloutSpec, StatefulSetRolloutStatus,
    names::{
        ANNOTATION_KUBECTL_RESTART, ANNOTATION_TEMPLATE_HASH, LABEL_DEPLOYMENT, LABEL_MANAGED_BY,
        LABEL_WORKERS, MANAGER,
    },
};

use crate::revision::{config, sizes_of};

pub use crate::api::names::LAST_APPLIED;
pub use key::Key;
pub use meta::{Meta, Owner, parse_time};
pub use pod::{ClosedGate, ContainerState, Deletion, ObservedPod, PodCondition, StartTime, Termination};
pub use requests::{restart_request, retried_plan};

use pod::{PodSpecJson, images, read_pod};

/// An object as it was received: as text, or as a value.
pub trait Sent {
    /// The fields that `T` has; all others are skipped.
    fn try_fields<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error>;

    /// The same for an object that the API server has validated: one whose fields have other types is read as one
    /// without fields.
    #[must_use]
    fn fields<T: DeserializeOwned + Default>(&self) -> T {
        self.try_fields().unwrap_or_default()
    }
}

impl Sent for Value {
    fn try_fields<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self)
    }
}

impl Sent for RawValue {
    fn try_fields<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

/// An object in a watch cache.
pub trait Observed: Send + Sync + Sized + 'static {
    /// Reads it from the API server's JSON, with its metadata, which is already read.
    #[must_use]
    fn of(object: &impl Sent, meta: Meta) -> Self;
    /// Reads a later state of a known object. What cannot have changed since is taken over from the known state.
    #[must_use]
    fn after(object: &impl Sent, meta: Meta, _known: &Self) -> Self {
        Self::of(object, meta)
    }
    /// Reads it, with its metadata, from the API server's JSON.
    #[must_use]
    fn read(object: &Value) -> Self {
        Self::of(object, Meta::read(object))
    }
    /// Its metadata.
    fn meta(&self) -> &Meta;
    /// True if everything that is read of it, except the resourceVersion, is the same as in an earlier state, so that
    /// no decision changes.
    #[must_use]
    fn content_equals(&mut self, _earlier: &Self) -> bool {
        false
    }
    /// The index keys of the object: what it belongs to. At most a handful.
    #[must_use]
    fn groups(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// A fleet.
#[derive(Clone, Debug)]
pub struct ObservedFleet {
    /// Its metadata.
    pub meta: Meta,
    /// Its spec, or why it cannot be read.
    pub spec: Result<Arc<NodeDeploymentSpec>, String>,
    /// Its status.
    pub status: Box<NodeDeploymentStatus>,
    /// The parts of its status that could not be read.
    pub unreadable: Vec<String>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// Its metadata.
    pub meta: Meta,
    /// Its spec, or why it cannot be read.
    pub spec: Result<Arc<StatefulNodeSpec>, String>,
    /// Its status.
    pub status: Box<StatefulNodeStatus>,
    /// The parts of its status that could not be read.
    pub unreadable: Vec<String>,
}

impl ObservedFleet {
    /// The same with the recorded digest of the ConfigMaps and Secrets that the pod template names: it is a part of the
    /// template that is rolled out.
    fn completed(mut self) -> Self {
        if let Ok(spec) = &self.spec
            && let Some(spec) = config::with_digest(spec, &self.status.config_digest)
        {
            self.spec = Ok(Arc::new(spec));
        }
        self
    }
}

impl ObservedNode {
    fn completed(self) -> Self {
        self
    }
}

/// A StatefulSetRollout.
#[derive(Clone, Debug)]
pub struct ObservedRollout {
    /// Its metadata.
    pub meta: Meta,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its spec, or why it cannot be read.
    pub spec: Result<Arc<StatefulSetRolloutSpec>, String>,
    /// Its status.
    pub status: Box<StatefulSetRolloutStatus>,
    /// The parts of its status that could not be read.
    pub unreadable: Vec<String>,
}

/// What a StatefulSetRollout reads of a StatefulSet that Windlass did not create.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExternalSet {
    /// `spec.updateStrategy`.
    pub update_strategy: Value,
    /// `spec.ordinals.start`.
    pub start: i64,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i64,
    /// True if its pods are created in order: `spec.podManagementPolicy` is not Parallel.
    pub is_ordered: bool,
    /// `spec.selector`, in the notation of a request.
    pub selector: String,
    /// `status.currentRevision`.
    pub current_revision: String,
}

/// A StatefulSet.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedStatefulSet {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.replicas`.
    pub replicas: i64,
    /// `spec.updateStrategy.type`.
    pub update_strategy: String,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: Option<i64>,
    /// True if `spec.persistentVolumeClaimRetentionPolicy` deletes claims with the StatefulSet or when it is scaled
    /// down.
    pub deletes_claims: bool,
    /// Container names and images of `spec.template`, in order.
    pub images: Shared<Vec<(String, String)>>,
    /// What its pods are created for, by the annotations of `spec.template`.
    pub made_for: Option<Shared<BuiltFor>>,
    /// The time of the last `kubectl rollout restart`, by the annotations of `spec.template`.
    pub kubectl_restart: Option<Box<str>>,
    /// A digest of `spec.template`, as the API server stores it.
    pub template_digest: String,
    /// The sizes of `spec.volumeClaimTemplates`, by their names.
    pub claim_sizes: BTreeMap<String, String>,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// `status.updateRevision`.
    pub update_revision: String,
    /// The fields that only a StatefulSetRollout reads; `None` if Windlass created it.
    pub external: Option<Box<ExternalSet>>,
}

impl ObservedStatefulSet {
    /// The pod template hash in its own annotation.
    #[must_use]
    pub fn stamp(&self) -> Option<&str> {
        self.meta.annotation(ANNOTATION_TEMPLATE_HASH)
    }

    /// The pod template hash that its template was written for, by the template's annotations. If an earlier version of
    /// Windlass wrote it, this is the hash in the StatefulSet's own annotation.
    #[must_use]
    pub fn written_for(&self) -> Option<PodTemplateHash> {
        let said = self.made_for.as_ref().map(|made_for| made_for.hash.clone());
        said.or_else(|| self.stamp().and_then(PodTemplateHash::recorded))
    }

    /// True if the StatefulSet controller has observed its latest generation.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observed_generation == self.meta.generation
    }

    /// The revision of the template that the StatefulSet has now; `None` until its controller has observed that.
    #[must_use]
    pub fn revision_of_now(&self) -> Option<&str> {
        Some(self.update_revision.as_str()).filter(|revision| self.is_observed() && !revision.is_empty())
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedService {
    /// Its metadata.
    pub meta: Meta,
    /// Its spec, stored as text because it is rarely read.
    pub spec: JsonText,
}

/// A PodDisruptionBudget: one of Windlass, or of anybody else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedBudget {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.selector`; without one, it selects no pod.
    pub selector: Option<LabelSelector>,
    /// `spec.minAvailable`.
    pub min_available: Option<IntOrString>,
    /// `spec.maxUnavailable`.
    pub max_unavailable: Option<IntOrString>,
}

/// A volume claim.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedClaim {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.storageClassName`.
    pub storage_class: Box<str>,
    /// `spec.resources.requests.storage`.
    pub requested: Box<str>,
    /// `status.capacity.storage`; empty if it is not bound.
    pub capacity: Box<str>,
    /// Its conditions that are `True`. They all are about a change of its volume.
    pub conditions: Vec<ClaimCondition>,
    /// True if a kubelet says that it grows the file system.
    pub grows_file_system: bool,
}

/// A condition of a volume claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimCondition {
    /// Its type, for example `FileSystemResizePending`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its message.
    pub message: String,
    /// Since when it is `True`.
    pub last_transition_time: Option<DateTime<Utc>>,
}

/// A ControllerRevision of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedRevision {
    /// Its metadata.
    pub meta: Meta,
    /// Its number.
    pub revision: i64,
    /// Its data, stored as text: there are many revisions, and few are ever read again.
    pub data: JsonText,
}

/// A machine: a Kubernetes Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedMachine {
    /// Its metadata.
    pub meta: Meta,
    /// True if it is cordoned.
    pub unschedulable: bool,
    /// The keys of its taints.
    pub taints: Vec<String>,
}

/// A whole object of a kind of which there are few.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedObject {
    /// Its metadata.
    pub meta: Meta,
    /// The object, without managed fields.
    pub object: Value,
}

impl Observed for ObservedObject {
    fn of(object: &impl Sent, meta: Meta) -> Self {
        let mut object: Value = object.fields();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Self { meta, object }
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
    fn groups(&self) -> Vec<&str> {
        self.meta.label(LABEL_WORKERS).into_iter().collect()
    }
}

/// Compares everything that is read by the type's own equality. The resourceVersions are made equal for the comparison.
macro_rules! content_equals {
    () => {
        fn content_equals(&mut self, earlier: &Self) -> bool {
            let version = self.meta.resource_version.clone();
            self.meta.resource_version.clone_from(&earlier.meta.resource_version);
            let is_same = self == earlier;
            self.meta.resource_version = version;
            is_same
        }
    };
}

/// An object of a kind that is known only at run time: without its status, whose changes affect no decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedResource {
    /// Its metadata.
    pub meta: Meta,
    /// The object, without managed fields and status.
    pub object: Value,
}

impl Observed for ObservedResource {
    content_equals!();
    fn of(object: &impl Sent, meta: Meta) -> Self {
        let ObservedObject { meta, mut object } = ObservedObject::of(object, meta);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // It changes with the status.
            metadata.remove("resourceVersion");
        }
        Self { meta, object }
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
    fn groups(&self) -> Vec<&str> {
        self.meta.label(LABEL_WORKERS).into_iter().collect()
    }
}

macro_rules! observed {
    ($($type:ty, $groups:path, $read:expr),* $(,)?) => {$(
        impl Observed for $type {
            content_equals!();
            fn of(object: &impl Sent, meta: Meta) -> Self {
                $read(object.fields(), meta)
            }
            fn meta(&self) -> &Meta {
                &self.meta
            }
            fn groups(&self) -> Vec<&str> {
                $groups(&self.meta)
            }
        }
    )*};
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecAndStatus<S> {
    spec: S,
    status: Value,
}

/// For Windlass's own kinds. Most updates change only the status, but the spec is larger. So the spec is read again
/// only if `metadata.generation` has changed.
macro_rules! observed_with_spec {
    ($($type:ty),*) => {$(
        impl Observed for $type {
            fn of(object: &impl Sent, meta: Meta) -> Self {
                let SpecAndStatus { spec, status } = object.fields::<SpecAndStatus<Value>>();
                let (status, unreadable) = lenient(&status);
                Self { meta, spec: strict(&spec), status: Box::new(status), unreadable }.completed()
            }
            fn after(object: &impl Sent, meta: Meta, known: &Self) -> Self {
                if known.meta.generation != meta.generation {
                    return Self::of(object, meta);
                }
                let SpecAndStatus { status, .. } = object.fields::<SpecAndStatus<IgnoredAny>>();
                let (status, unreadable) = lenient(&status);
                Self { meta, spec: known.spec.clone(), status: Box::new(status), unreadable }.completed()
            }
            fn meta(&self) -> &Meta {
                &self.meta
            }
            fn groups(&self) -> Vec<&str> {
                by_owner(&self.meta)
            }
        }
    )*};
}

/// Indexes an object by the UID of what it belongs to.
fn by_owner(meta: &Meta) -> Vec<&str> {
    meta.owner_uid().into_iter().collect()
}

/// Indexes an object by the UIDs of all its owners.
fn by_owners(meta: &Meta) -> Vec<&str> {
    meta.owners.iter().map(|owner| owner.uid.as_str()).collect()
}

/// Indexes a pod by the name of the fleet in its label or, if it has none, by the UID of its StatefulSet.
fn by_fleet_or_set(meta: &Meta) -> Vec<&str> {
    let set =
        || meta.controller().filter(|owner| owner.kind == "StatefulSet").map(|owner| owner.uid.as_str());
    meta.label(LABEL_DEPLOYMENT).or_else(set).into_iter().collect()
}

/// Indexes an object by the name of the fleet in its label.
fn by_fleet(meta: &Meta) -> Vec<&str> {
    meta.label(LABEL_DEPLOYMENT).into_iter().collect()
}

observed_with_spec!(ObservedFleet, ObservedNode);

#[derive(Default, Deserialize)]
#[serde(default)]
struct RolloutJson {
    metadata: FinalizersJson,
    spec: Value,
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FinalizersJson {
    finalizers: Vec<String>,
}

impl Observed for ObservedRollout {
    fn of(object: &impl Sent, meta: Meta) -> Self {
        let RolloutJson { metadata, spec, status } = object.fields();
        let (status, unreadable) = lenient(&status);
        let finalizers = metadata.finalizers;
        Self { meta, finalizers, spec: strict(&spec), status: Box::new(status), unreadable }
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The group of the StatefulSets with [`ObservedStatefulSet::deletes_claims`]. It cannot be the name of a fleet.
pub const DELETES_CLAIMS: &str = "deletes/claims";

/// A StatefulSet, as the API server sends it, with its pod template or without.
#[derive(Default, Deserialize)]
#[serde(default, bound = "T: Default + DeserializeOwned")]
struct StatefulSetJson<T> {
    spec: StatefulSetSpecJson<T>,
    status: StatefulSetStatusJson,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "T: Default + DeserializeOwned")]
struct StatefulSetSpecJson<T> {
    replicas: Option<i64>,
    update_strategy: Value,
    ordinals: OrdinalsJson,
    min_ready_seconds: i64,
    pod_management_policy: String,
    selector: LabelSelector,
    revision_history_limit: Option<i64>,
    persistent_volume_claim_retention_policy: BTreeMap<String, String>,
    volume_claim_templates: Vec<Value>,
    template: T,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OrdinalsJson {
    start: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatefulSetStatusJson {
    observed_generation: i64,
    current_revision: String,
    update_revision: String,
}

/// A pod template, as the API server sends it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateJson {
    metadata: TemplateMetaJson,
    spec: PodSpecJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateMetaJson {
    annotations: BTreeMap<String, String>,
}

impl Observed for ObservedStatefulSet {
    fn of(object: &impl Sent, meta: Meta) -> Self {
        let StatefulSetJson { spec, status } = object.fields::<StatefulSetJson<Value>>();
        let template: TemplateJson = spec.template.fields();
        let annotation = |key: &str| template.metadata.annotations.get(key).map(String::as_str);
        Self {
            images: images(&template.spec),
            made_for: BuiltFor::read(annotation).map(Shared::from),
            kubectl_restart: annotation(ANNOTATION_KUBECTL_RESTART).map(Box::from),
            template_digest: digest(&spec.template),
            ..Self::without_template(spec, status, meta)
        }
    }
    fn after(object: &impl Sent, meta: Meta, known: &Self) -> Self {
        if known.meta.generation != meta.generation {
            return Self::of(object, meta);
        }
        let StatefulSetJson { spec, status } = object.fields::<StatefulSetJson<IgnoredAny>>();
        Self {
            images: known.images.clone(),
            made_for: known.made_for.clone(),
            kubectl_restart: known.kubectl_restart.clone(),
            template_digest: known.template_digest.clone(),
            ..Self::without_template(spec, status, meta)
        }
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
    // While its pod is replaced, a StatefulSet's status is written four times; three of these updates change nothing
    // here.
    content_equals!();
    fn groups(&self) -> Vec<&str> {
        let mut groups = by_fleet(&self.meta);
        if self.deletes_claims {
            groups.push(DELETES_CLAIMS);
        }
        groups
    }
}

impl ObservedStatefulSet {
    fn without_template<T>(spec: StatefulSetSpecJson<T>, status: StatefulSetStatusJson, meta: Meta) -> Self {
        let retention = spec.persistent_volume_claim_retention_policy;
        let is_external = meta.label(LABEL_MANAGED_BY) != Some(MANAGER);
        let update_strategy = spec.update_strategy["type"].as_str().unwrap_or_default().to_owned();
        let external = is_external.then(|| {
            Box::new(ExternalSet {
                update_strategy: spec.update_strategy,
                start: spec.ordinals.start,
                min_ready_seconds: spec.min_ready_seconds,
                is_ordered: spec.pod_management_policy != "Parallel",
                // The API server has validated it.
                selector: Selector::try_from(spec.selector).unwrap_or_default().to_string(),
                current_revision: status.current_revision,
            })
        });
        Self {
            meta,
            external,
            replicas: spec.replicas.unwrap_or(1),
            update_strategy,
            revision_history_limit: spec.revision_history_limit,
            deletes_claims: retention.values().any(|policy| policy == "Delete"),
            claim_sizes: sizes_of(&spec.volume_claim_templates),
            observed_generation: status.observed_generation,
            update_revision: status.update_revision,
            ..Self::default()
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceJson {
    spec: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BudgetJson {
    spec: BudgetSpecJson,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetSpecJson {
    selector: Option<LabelSelector>,
    min_available: Option<IntOrString>,
    max_unavailable: Option<IntOrString>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RevisionJson {
    revision: i64,
    data: Value,
}

observed! {
    ObservedPod, by_fleet_or_set, read_pod,
    ObservedService, by_owner, |object: ServiceJson, meta| Self { meta, spec: JsonText::from(&object.spec) },
    // Its status changes with each pod, and nothing reads it.
    ObservedBudget, by_owner, |object: BudgetJson, meta| {
        let BudgetSpecJson { selector, min_available, max_unavailable } = object.spec;
        Self { meta, selector, min_available, max_unavailable }
    },
    ObservedClaim, by_owners, |object: ClaimJson, meta| {
        let ClaimJson { spec, status } = object;
        let is_bound = status.phase == "Bound";
        let holds = |condition: ConditionJson| (condition.status == "True").then_some(condition.of);
        Self {
            meta,
            storage_class: spec.storage_class_name.into(),
            requested: spec.resources.requests.storage.into(),
            capacity: if is_bound { status.capacity.storage.into() } else { Box::default() },
            conditions: status.conditions.into_iter().filter_map(holds).collect(),
            grows_file_system: status.allocated_resource_statuses.storage == "NodeResizeInProgress",
        }
    },
    ObservedMachine, no_group, |object: MachineJson, meta: Meta| Self {
        // Its kubelet changes the rest often, and nothing depends on that.
        meta: Meta {
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            terminating: meta.terminating,
            labels: meta.labels,
            ..Meta::default()
        },
        unschedulable: object.spec.unschedulable,
        taints: object.spec.taints.into_iter().map(|taint| taint.key).collect(),
    },
    ObservedRevision, by_owner, |object: RevisionJson, meta| Self {
        meta,
        revision: object.revision,
        data: JsonText::from(&object.data),
    },
}

/// A volume claim, as the API server sends it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimJson {
    spec: ClaimSpecJson,
    status: ClaimStatusJson,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpecJson {
    storage_class_name: String,
    resources: ResourcesJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourcesJson {
    requests: StorageJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StorageJson {
    storage: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatusJson {
    phase: String,
    capacity: StorageJson,
    conditions: Vec<ConditionJson>,
    allocated_resource_statuses: StorageJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionJson {
    #[serde(flatten)]
    of: ClaimCondition,
    status: String,
}

/// A machine, as the API server sends it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MachineJson {
    spec: MachineSpecJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MachineSpecJson {
    unschedulable: bool,
    taints: Vec<TaintJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaintJson {
    key: String,
}

fn no_group(_: &Meta) -> Vec<&str> {
    Vec::new()
}

/// A digest of 32 hex digits that identifies a template. It is not a versioned hash: it only ever compares one response
/// of the API server with another.
fn digest(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    let mut text = String::with_capacity(32);
    for byte in &digest[..16] {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn strict<T: DeserializeOwned>(value: &Value) -> Result<Arc<T>, String> {
    T::deserialize(value).map(Arc::new).map_err(|e| format!("spec cannot be read: {e}"))
}

/// Reads a status. If it cannot be read as a whole, it is read field by field, so that one field that another version
/// wrote never hides the others. Also returns the names of the fields that were left out.
fn lenient<T: DeserializeOwned + Default>(value: &Value) -> (T, Vec<String>) {
    let Some(fields) = value.as_object() else { return (T::default(), Vec::new()) };
    if let Ok(whole) = T::deserialize(value) {
        return (whole, Vec::new());
    }
    let mut readable = serde_json::Map::new();
    let mut unreadable = Vec::new();
    for (name, field) in fields {
        let alone = Value::Object([(name.clone(), field.clone())].into_iter().collect());
        if T::deserialize(&alone).is_ok() {
            readable.insert(name.clone(), field.clone());
        } else {
            unreadable.push(name.clone());
        }
    }
    (T::deserialize(&Value::Object(readable)).unwrap_or_default(), unreadable)
}
