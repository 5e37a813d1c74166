//! An object as the API server sends it. kube-rs' own `DynamicObject` reads each one three times: into a map of what is
//! flattened, into typed metadata, and, to get the JSON that the caches read, back into a value. Here it is read once, and
//! without what nobody looks at: who wrote which field, and kubectl's copy of the whole, are as much as all the rest.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::observed::LAST_APPLIED;

/// An object as JSON, with as much of its metadata as kube-rs asks for: name, namespace and resourceVersion.
#[derive(Clone, Debug)]
pub struct RawObject {
    metadata: ObjectMeta,
    /// All of it.
    pub value: Value,
}

impl RawObject {
    /// Whether somebody has asked for its deletion.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.value["metadata"]["deletionTimestamp"].is_string()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_map(Whole)?;
        let text = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

/// Reads an object.
struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            let value =
                if field == "metadata" { fields.next_value_seed(Metadata)? } else { fields.next_value()? };
            object.insert(field, value);
        }
        Ok(Value::Object(object))
    }
}

/// Reads an object's `metadata`, and passes over what is not kept without building it.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            if field == "managedFields" {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let mut value = fields.next_value::<Value>()?;
            if field == "annotations"
                && let Some(annotations) = value.as_object_mut()
            {
                annotations.remove(LAST_APPLIED);
            }
            metadata.insert(field, value);
        }
        Ok(Value::Object(metadata))
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
        assert_eq!(read.value, sent);
        assert_eq!(read.meta().name.as_deref(), Some("db-0"));
        let also: RawObject = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(also.value, sent);
    }
}
