//! An object as the API server sends it: as text, of which only the needed parts are parsed. Most watch events are the
//! echo of our own writes, and their metadata already shows that they are not new. Of a pod or a node whose spec is
//! known, nine tenths are templates, environment variables and managed fields. To parse all of that into a tree and
//! discard it was most of the operator's work.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub use windlass_core::observed::Sent;
use windlass_core::observed::{LAST_APPLIED, Meta};

/// An object as text, with its metadata parsed.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// The part that kube-rs reads: name, namespace and resourceVersion.
    metadata: ObjectMeta,
    seen: Meta,
    text: Box<RawValue>,
}

impl RawObject {
    /// The parsed metadata.
    #[must_use]
    pub fn seen(&self) -> &Meta {
        &self.seen
    }

    /// True if the object has a deletion timestamp.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.seen.terminating
    }

    /// The whole object, without managed fields and without kubectl's last-applied annotation.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut value: Value = self.text.fields();
        for (within, name) in [("/metadata", "managedFields"), ("/metadata/annotations", LAST_APPLIED)] {
            if let Some(Value::Object(fields)) = value.pointer_mut(within) {
                fields.remove(name);
            }
        }
        value
    }
}

/// Only JSON can be kept as text: an event whose object comes before its type, which serde buffers, cannot be read. The
/// API server sends the type first.
impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let seen = Meta::try_read(&*text).map_err(D::Error::custom)?;
        let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let metadata = ObjectMeta {
            name: named(&seen.name),
            namespace: named(&seen.namespace),
            resource_version: named(&seen.resource_version),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, seen, text })
    }
}

impl Sent for RawObject {
    fn try_fields<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.text.try_fields()
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.api_version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_and_last_applied_annotation_are_dropped() {
        let mut sent = json!({
            "kind": "StatefulNode",
            "metadata": {
                "name": "db-0", "namespace": "shop", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {LAST_APPLIED: "{}", "c": "d"},
                "managedFields": [{"manager": "windlass", "fieldsV1": {"f:spec": {"f:image": {}}}}],
            },
            "spec": {"podTemplate": {"metadata": {"managedFields": "a field of theirs"}}},
        });
        let read: RawObject = serde_json::from_str(&sent.to_string()).unwrap();
        sent["metadata"].as_object_mut().unwrap().remove("managedFields");
        sent["metadata"]["annotations"].as_object_mut().unwrap().remove(LAST_APPLIED);
        assert_eq!(read.value(), sent);
        assert_eq!(read.meta().name.as_deref(), Some("db-0"));
        let also: RawObject = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(also.value(), sent);
    }

    #[test]
    fn unreadable_metadata_is_an_error() {
        let read = serde_json::from_str::<RawObject>(r#"{"metadata": {"name": 7}}"#);
        assert!(read.unwrap_err().to_string().contains("expected a string"));
    }

    #[test]
    fn object_text_is_kept_unchanged() {
        let sent = r#"{ "metadata": {"name":"db-0"},  "z": 1, "a": 2 }"#;
        let read: RawObject = serde_json::from_str(sent).unwrap();
        assert_eq!(read.text.get(), sent, "nothing but the metadata was read of it");
    }
}
