//! What the caches hold: of each object only what a decision needs.

mod key;
mod meta;
mod pod;

use std::fmt::Write;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::{
    JsonText, MadeFor, NodeDeploymentSpec, NodeDeploymentStatus, PodTemplateHash, Shared, StatefulNodeSpec,
    StatefulNodeStatus,
    names::{ANNOTATION_TEMPLATE_HASH, LABEL_DEPLOYMENT},
};
use crate::parts::Parts;

pub use key::Key;
pub use meta::{LAST_APPLIED, Meta, Owner};
pub use pod::{ContainerState, ObservedPod, PodCondition};

use meta::text;
use pod::{POD, images, read_pod};

/// Something that a watch cache can hold.
pub trait Observed: Send + Sync + Sized + 'static {
    /// All that [`Self::of`] looks at.
    const READ: Parts;
    /// All that [`Self::after`] looks at of an object whose generation is the one that is known.
    const READ_AFTER: Parts = Self::READ;
    /// Reads it from the API server's JSON, of which the metadata are read.
    #[must_use]
    fn of(object: &Value, meta: Meta) -> Self;
    /// Reads it where an earlier state of the same object is known: what cannot have changed since is not read again.
    #[must_use]
    fn after(object: &Value, meta: Meta, _known: &Self) -> Self {
        Self::of(object, meta)
    }
    /// Reads it from the API server's JSON.
    #[must_use]
    fn read(object: &Value) -> Self {
        Self::of(object, Meta::read(object))
    }
    /// Its metadata.
    fn meta(&self) -> &Meta;
    /// Whether all that is read of it is as it was in an earlier state of it, but for the resourceVersion: no decision comes
    /// out differently.
    #[must_use]
    fn says_the_same(&mut self, _earlier: &Self) -> bool {
        false
    }
    /// What it belongs to, by which it is found with others of its kind; at most a handful.
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

/// A StatefulSet.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedSet {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.replicas`.
    pub replicas: i64,
    /// `spec.updateStrategy.type`.
    pub update_strategy: String,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: Option<i64>,
    /// `spec.persistentVolumeClaimRetentionPolicy`: whether it lets claims go with the StatefulSet, or with its replicas.
    pub deletes_claims: bool,
    /// Container names and images of `spec.template`, in order.
    pub images: Shared<Vec<(String, String)>>,
    /// What its pods are made for, as the annotations of `spec.template` say.
    pub made_for: Option<Shared<MadeFor>>,
    /// A digest of `spec.template`, as the API server has it.
    pub template_digest: String,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// `status.updateRevision`.
    pub update_revision: String,
}

impl ObservedSet {
    /// The pod template hash that it was last stamped with.
    #[must_use]
    pub fn stamp(&self) -> Option<&str> {
        self.meta.annotation(ANNOTATION_TEMPLATE_HASH)
    }

    /// The pod template hash that its template was written for: the template itself says it, or, where an earlier version
    /// of Windlass wrote it, the stamp.
    #[must_use]
    pub fn written_for(&self) -> Option<PodTemplateHash> {
        let said = self.made_for.as_ref().map(|made_for| made_for.hash.clone());
        said.or_else(|| self.stamp().and_then(PodTemplateHash::recorded))
    }

    /// Whether its controller has seen its latest spec.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observed_generation == self.meta.generation
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedService {
    /// Its metadata.
    pub meta: Meta,
    /// Its spec, as text: few look at it.
    pub spec: JsonText,
}

/// A volume claim.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedClaim {
    /// Its metadata.
    pub meta: Meta,
}

/// A ControllerRevision of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedRevision {
    /// Its metadata.
    pub meta: Meta,
    /// Its number.
    pub revision: i64,
    /// What it holds, as text: there are many, and few are ever read again.
    pub data: JsonText,
}

/// Compares all that is read, by the type's own equality: for the comparison both are of one version.
macro_rules! says_the_same {
    () => {
        fn says_the_same(&mut self, earlier: &Self) -> bool {
            let version = self.meta.resource_version.clone();
            self.meta.resource_version.clone_from(&earlier.meta.resource_version);
            let is_same = self == earlier;
            self.meta.resource_version = version;
            is_same
        }
    };
}

macro_rules! observed {
    ($($type:ty, $groups:path, $parts:expr => $read:expr),* $(,)?) => {$(
        impl Observed for $type {
            const READ: Parts = $parts;
            says_the_same!();
            fn of(object: &Value, meta: Meta) -> Self {
                let read: fn(&Value, Meta) -> Self = $read;
                read(object, meta)
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

/// Windlass's own kinds: most of their changes are of the status, and the spec is most of what there is to read. The
/// API server counts the changes of the spec.
macro_rules! observed_with_spec {
    ($($type:ty),*) => {$(
        impl Observed for $type {
            const READ: Parts = Parts::Only(&[("spec", Parts::All), ("status", Parts::All)]);
            const READ_AFTER: Parts = Parts::Only(&[("status", Parts::All)]);
            fn of(object: &Value, meta: Meta) -> Self {
                let spec = strict(&object["spec"]);
                let (status, unreadable) = lenient(&object["status"]);
                Self { meta, spec, status: Box::new(status), unreadable }
            }
            fn after(object: &Value, meta: Meta, known: &Self) -> Self {
                if known.meta.generation != meta.generation {
                    return Self::of(object, meta);
                }
                let (status, unreadable) = lenient(&object["status"]);
                Self { meta, spec: known.spec.clone(), status: Box::new(status), unreadable }
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

/// By the UID of what it belongs to.
fn by_owner(meta: &Meta) -> Vec<&str> {
    meta.owner_uid().into_iter().collect()
}

/// By the UIDs of all that it would go with.
fn by_owners(meta: &Meta) -> Vec<&str> {
    meta.owners.iter().map(|owner| owner.uid.as_str()).collect()
}

/// By the name of the fleet that its label says.
fn by_fleet(meta: &Meta) -> Vec<&str> {
    meta.label(LABEL_DEPLOYMENT).into_iter().collect()
}

observed_with_spec!(ObservedFleet, ObservedNode);

/// The parts of a StatefulSet beside its template.
const SET_STATUS: Parts = Parts::Only(&[("observedGeneration", Parts::All), ("updateRevision", Parts::All)]);

impl Observed for ObservedSet {
    const READ: Parts = Parts::Only(&[
        (
            "spec",
            Parts::Only(&[
                ("replicas", Parts::All),
                ("updateStrategy", Parts::All),
                ("revisionHistoryLimit", Parts::All),
                ("persistentVolumeClaimRetentionPolicy", Parts::All),
                ("template", Parts::All),
            ]),
        ),
        ("status", SET_STATUS),
    ]);
    const READ_AFTER: Parts = Parts::Only(&[
        (
            "spec",
            Parts::Only(&[
                ("replicas", Parts::All),
                ("updateStrategy", Parts::All),
                ("revisionHistoryLimit", Parts::All),
                ("persistentVolumeClaimRetentionPolicy", Parts::All),
            ]),
        ),
        ("status", SET_STATUS),
    ]);
    fn of(object: &Value, meta: Meta) -> Self {
        let template = &object["spec"]["template"];
        let annotations = &template["metadata"]["annotations"];
        Self {
            images: images(&template["spec"]),
            made_for: MadeFor::read(|key| annotations[key].as_str()).map(Shared::from),
            template_digest: digest(template),
            ..Self::without_template(object, meta)
        }
    }
    fn after(object: &Value, meta: Meta, known: &Self) -> Self {
        if known.meta.generation != meta.generation {
            return Self::of(object, meta);
        }
        Self {
            images: known.images.clone(),
            made_for: known.made_for.clone(),
            template_digest: known.template_digest.clone(),
            ..Self::without_template(object, meta)
        }
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
    // Of the four times that a StatefulSet's status is written while its pod is replaced, three change nothing here.
    says_the_same!();
    fn groups(&self) -> Vec<&str> {
        by_fleet(&self.meta)
    }
}

impl ObservedSet {
    fn without_template(object: &Value, meta: Meta) -> Self {
        Self {
            meta,
            replicas: object["spec"]["replicas"].as_i64().unwrap_or(1),
            update_strategy: text(&object["spec"]["updateStrategy"]["type"]),
            revision_history_limit: object["spec"]["revisionHistoryLimit"].as_i64(),
            deletes_claims: ["whenDeleted", "whenScaled"]
                .iter()
                .any(|when| object["spec"]["persistentVolumeClaimRetentionPolicy"][when] == "Delete"),
            observed_generation: object["status"]["observedGeneration"].as_i64().unwrap_or_default(),
            update_revision: text(&object["status"]["updateRevision"]),
            ..Self::default()
        }
    }
}

observed! {
    ObservedPod, by_fleet, POD => read_pod,
    ObservedService, by_owner, Parts::Only(&[("spec", Parts::All)]) => |object, meta| Self {
        meta,
        spec: JsonText::from(&object["spec"]),
    },
    ObservedClaim, by_owners, Parts::Nothing => |_, meta| Self { meta },
    ObservedRevision, by_owner, Parts::Only(&[("revision", Parts::All), ("data", Parts::All)]) => |object, meta| Self {
        meta,
        revision: object["revision"].as_i64().unwrap_or_default(),
        data: JsonText::from(&object["data"]),
    },
}

/// 32 hex digits that tell a template from others. Not a hash that is compared across versions: only ever one answer of
/// the API server with another.
fn digest(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    let mut text = String::with_capacity(32);
    for byte in &digest[..16] {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn strict<T: DeserializeOwned>(value: &Value) -> Result<Arc<T>, String> {
    T::deserialize(value).map(Arc::new).map_err(|e| format!("spec cannot be read: {e}"))
}

/// Reads a status field by field where it cannot be read whole, so that one field written by another
/// version never hides the others. Answers with the names of those left out.
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
