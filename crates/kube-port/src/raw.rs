//! An object as the API server sends it: as text, of which only the needed parts are parsed. Most watch events are the
//! echo of our own writes, and their metadata already shows that they are not new. Of a pod or a node whose spec is
//! known, nine tenths are templates, environment variables and managed fields. To parse all of that into a tree and
//! discard it was most of the operator's work.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use windlass_core::observed::{LAST_APPLIED, Meta};
pub use windlass_core::parts::Parts;

/// An object as text, with its metadata parsed.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// The part that kube-rs reads: name, namespace and resourceVersion.
    metadata: ObjectMeta,
    seen: Meta,
    text: Box<str>,
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
        self.read(WHOLE)
    }

    fn read(&self, parts: Parts) -> Value {
        // The text was checked to be JSON when it was received.
        read(&self.text, parts).unwrap_or_default()
    }
}

fn read(text: &str, parts: Parts) -> serde_json::Result<Value> {
    parts.deserialize(&mut serde_json::Deserializer::from_str(text))
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_newtype_struct(AS_TEXT, Text)?;
        let seen = Meta::read(&read(&text, METADATA).map_err(serde::de::Error::custom)?);
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

/// The name of the newtype under which `serde_json` passes JSON through unparsed, for its own `RawValue`. `RawValue`
/// itself cannot be used: it accepts no other deserializer, and serde deserializes from buffered content if the API
/// server or a proxy sends an event's `object` before its `type`.
const AS_TEXT: &str = "$serde_json::private::RawValue";

/// Reads JSON as text: unchanged if the deserializer passes it through, and serialized again otherwise.
struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Box<str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<str>, D::Error> {
        Value::deserialize(deserializer).map(|value| value.to_string().into_boxed_str())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Box<str>, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == AS_TEXT {
                return fields.next_value();
            }
            object.insert(name, fields.next_value()?);
        }
        Ok(Value::Object(object).to_string().into_boxed_str())
    }
}

/// An object as the caches receive it: as text, or as a value.
pub trait Sent {
    /// At least these parts of the object.
    fn parts(&self, parts: Parts) -> Cow<'_, Value>;
}

impl Sent for RawObject {
    fn parts(&self, parts: Parts) -> Cow<'_, Value> {
        Cow::Owned(self.read(parts))
    }
}

impl Sent for Value {
    fn parts(&self, _: Parts) -> Cow<'_, Value> {
        Cow::Borrowed(self)
    }
}

/// The parts of the metadata that are used. Managed fields and kubectl's last-applied annotation are as large as
/// everything else.
const METADATA_PARTS: Parts = Parts::But(&[
    ("managedFields", Parts::Nothing),
    ("annotations", Parts::But(&[(LAST_APPLIED, Parts::Nothing)])),
]);
const METADATA: Parts = Parts::Only(&[("metadata", METADATA_PARTS)]);
const WHOLE: Parts = Parts::But(&[("metadata", METADATA_PARTS)]);

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
    fn who_wrote_what_and_kubectls_copy_are_not_taken_in() {
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
    fn an_event_is_read_also_where_its_object_is_named_before_its_type() {
        use kube::api::WatchEvent;
        let object = r#"{"metadata":{"name":"db-0","uid":"u"},"spec":{"n":1}}"#;
        let first = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let last = format!(r#"{{"object":{object},"type":"ADDED"}}"#);
        for line in [first, last] {
            let Ok(WatchEvent::Added(read)) = serde_json::from_str::<WatchEvent<RawObject>>(&line) else {
                unreachable!("{line}")
            };
            assert_eq!(
                (read.value(), read.seen().uid.as_str()),
                (serde_json::from_str(object).unwrap(), "u")
            );
        }
    }

    #[test]
    fn what_is_sent_is_kept_as_it_came() {
        let sent = r#"{ "metadata": {"name":"db-0"},  "z": 1, "a": 2 }"#;
        let read: RawObject = serde_json::from_str(sent).unwrap();
        assert_eq!(&*read.text, sent, "nothing but the metadata was read of it");
    }

    #[test]
    fn only_what_is_asked_for_is_read_and_all_that_is() {
        const READ: Parts = Parts::Only(&[
            ("spec", Parts::Only(&[("containers", Parts::Only(&[("name", Parts::All)]))])),
            ("status", Parts::But(&[("long", Parts::Nothing)])),
        ]);
        let sent = json!({
            "metadata": {"name": "db-0", "uid": "u"},
            "spec": {"containers": [{"name": "a", "env": [{"name": "X"}]}, {"env": []}, null], "volumes": [1]},
            "status": {"long": {"a": [1]}, "n": [1, -2, 2.5, true, null, "x"], "o": {"p": {}}},
        });
        let read: RawObject = serde_json::from_value(sent).unwrap();
        let wanted = json!({
            "spec": {"containers": [{"name": "a"}, {}, null]},
            "status": {"n": [1, -2, 2.5, true, null, "x"], "o": {"p": {}}},
        });
        assert_eq!(*read.parts(READ), wanted);
        assert_eq!((read.seen().name.as_str(), read.seen().uid.as_str()), ("db-0", "u"));
    }
}
