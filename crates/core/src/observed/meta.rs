//! An object's metadata.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Sent;
use super::key::Key;
use crate::api::interned::pooled;
use crate::api::names::{ANNOTATION_OWNER_UID, LABEL_MANAGED_BY, LAST_APPLIED, MANAGER};
use crate::api::{PackedTexts, Shared};

/// An owner of an object.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq)]
#[serde(default)]
pub struct Owner {
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: String,
    /// True if it is the controller.
    pub controller: bool,
}

pooled!(Vec<Owner>);

/// The metadata that decisions need.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The resourceVersion, as it has to be sent back in a guarded write.
    pub resource_version: String,
    /// `metadata.generation`: increases with each change of the spec.
    pub generation: i64,
    /// Labels.
    pub labels: Shared<PackedTexts>,
    /// Annotations, without `kubectl`'s copy of the whole object.
    pub annotations: Shared<PackedTexts>,
    /// True if the object has a map of labels, so that a single key can be patched.
    pub has_labels: bool,
    /// True if the object has a map of annotations.
    pub has_annotations: bool,
    /// Owners.
    pub owners: Shared<Vec<Owner>>,
    /// True if it is being deleted.
    pub terminating: bool,
    /// True if it is being deleted, and the garbage collector first deletes or orphans its dependents.
    pub collects_first: bool,
    /// When it was created.
    pub created_at: Option<DateTime<Utc>>,
}

/// An object's `metadata`, as the API server sends it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaJson {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Vec<String>,
    creation_timestamp: Option<DateTime<Utc>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WithMeta {
    metadata: MetaJson,
}

impl Meta {
    /// Reads an object's `metadata`.
    #[must_use]
    pub fn read(object: &(impl Sent + ?Sized)) -> Self {
        Self::try_read(object).unwrap_or_default()
    }

    /// The same. The error names the field whose type differs from the API server's.
    pub fn try_read(object: &(impl Sent + ?Sized)) -> Result<Self, serde_json::Error> {
        let WithMeta { metadata } = object.try_fields()?;
        let texts = |texts: &Option<BTreeMap<String, String>>| -> Shared<PackedTexts> {
            let texts = texts.iter().flatten().filter(|(key, _)| *key != LAST_APPLIED);
            texts.map(|(key, value)| (key.as_str(), value.as_str())).collect::<PackedTexts>().into()
        };
        Ok(Self {
            labels: texts(&metadata.labels),
            annotations: texts(&metadata.annotations),
            has_labels: metadata.labels.is_some(),
            has_annotations: metadata.annotations.is_some(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            owners: metadata.owner_references.into(),
            terminating: metadata.deletion_timestamp.is_some(),
            collects_first: metadata.finalizers.iter().any(|f| f == "foregroundDeletion" || f == "orphan"),
            created_at: metadata.creation_timestamp,
        })
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// The resourceVersion as a number: API servers promise that a larger one is newer.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    /// The controlling owner, if there is one.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|o| o.controller)
    }

    /// The UID of the fleet or node that it belongs to: that of its controller or, if it has none, the one in its
    /// annotation.
    #[must_use]
    pub fn owner_uid(&self) -> Option<&str> {
        match self.controller() {
            Some(owner) => Some(&owner.uid),
            None => self.annotation(ANNOTATION_OWNER_UID),
        }
    }

    /// True if the object with this UID controls it.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|o| o.uid == uid)
    }

    /// True if its label says that Windlass manages it, which the watches of StatefulSets and Services select by. No
    /// watch shows changes or the deletion of other objects.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.label(LABEL_MANAGED_BY) == Some(MANAGER)
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key)
    }
}

/// Parses an RFC 3339 time.
#[must_use]
pub fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.with_timezone(&Utc))
}
