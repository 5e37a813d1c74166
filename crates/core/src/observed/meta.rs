//! An object's metadata, and helpers to read its fields.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::key::Key;
use crate::api::kept_once::pooled;
use crate::api::names::{ANNOTATION_OWNER_UID, LABEL_MANAGED_BY, LAST_APPLIED, MANAGER};
use crate::api::{PackedTexts, Shared};

/// An owner of an object.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
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
    /// True if the garbage collector deletes or orphans its dependents before it is gone, as it is being deleted.
    pub collects_first: bool,
    /// When it was created.
    pub created_at: Option<DateTime<Utc>>,
}

impl Meta {
    /// Reads an object's `metadata`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let meta = &object["metadata"];
        let owners = meta["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            resource_version: text(&meta["resourceVersion"]),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            labels: texts(&meta["labels"]),
            annotations: texts(&meta["annotations"]),
            has_labels: meta["labels"].is_object(),
            has_annotations: meta["annotations"].is_object(),
            owners: owners
                .iter()
                .map(|o| Owner {
                    kind: text(&o["kind"]),
                    name: text(&o["name"]),
                    uid: text(&o["uid"]),
                    controller: o["controller"].as_bool().unwrap_or_default(),
                })
                .collect::<Vec<_>>()
                .into(),
            terminating: meta["deletionTimestamp"].is_string(),
            collects_first: meta["finalizers"].as_array().is_some_and(|f| f.iter().any(is_of_collector)),
            created_at: time(&meta["creationTimestamp"]),
        }
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

    /// True if its label says that Windlass manages it, which the watches of StatefulSets and Services select by. Of any
    /// other object no watch shows a change, nor that it is gone.
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

/// True if a finalizer is one of the garbage collector's.
fn is_of_collector(finalizer: &Value) -> bool {
    matches!(finalizer.as_str(), Some("foregroundDeletion" | "orphan"))
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Parses an RFC 3339 time.
#[must_use]
pub fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.with_timezone(&Utc))
}

pub(super) fn time(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str().and_then(parse_time)
}

fn texts(value: &Value) -> Shared<PackedTexts> {
    let texts = value.as_object().into_iter().flatten();
    let texts = texts.filter(|(key, _)| *key != LAST_APPLIED);
    texts.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect::<PackedTexts>().into()
}
