//! POST: creates objects.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::admission::{self, policy::Operation};
use super::super::kinds::Kind;
use super::super::refusal::Refusal;
use super::super::store::{Object, is_terminating, meta};
use super::super::world::World;
use super::{FieldValidation, WriteOptions, read_body, strict_sentence, unreadable};

/// The result of a write.
pub(crate) struct Written {
    pub object: Arc<Object>,
    /// Warnings for the caller: dropped fields.
    pub warnings: Vec<String>,
    /// True if it was created.
    pub created: bool,
}

impl World {
    /// Creates an object from a body.
    pub(crate) fn create(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        check_type(kind, &body)?;
        let read = read_body(kind, body).map_err(|why| unreadable(kind, &why))?;
        if options.validation == FieldValidation::Strict && !read.unknown.is_empty() {
            return Err(unreadable(kind, &strict_sentence(&read.unknown)));
        }
        let warnings = warnings(options, &read.unknown);
        let mut object = read.value;
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.clone().into();
        self.stamp_new(kind, namespace, &mut object)?;
        self.check_namespace(kind, namespace, &object)?;
        admission::default(kind, &mut object, None);
        if admission::policy::mutate(&self.policies, &kind.kind, Operation::Create, &mut object) {
            admission::default(kind, &mut object, None);
        }
        admission::prepare_create(self, kind, &mut object);
        let name = meta(&object, "name").to_owned();
        let mut causes = admission::validate_metadata(kind, &object);
        causes.extend(admission::validate(self, kind, &object, None));
        if !causes.is_empty() {
            return Err(Refusal::invalid(kind, &name, &causes));
        }
        admission::allow_create(self, kind, namespace, &object)?;
        let key = (namespace.to_owned(), name);
        if self.store.get(kind.shelf, &key).is_some() {
            return Err(Refusal::already_exists(kind, &key.1));
        }
        if options.dry_run {
            return Ok(Written { object: Object::unstored(object), warnings, created: true });
        }
        let stored = self.put(kind, key, stored_form(kind, object));
        Ok(Written { object: shown_form(kind, &stored), warnings, created: true })
    }

    /// Sets the server's fields of the metadata.
    fn stamp_new(&mut self, kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Refusal> {
        let uid = self.random.uid();
        let now = self.timestamp();
        let metadata = &mut object["metadata"];
        if metadata.is_null() {
            *metadata = json!({});
        }
        let given = metadata["namespace"].as_str().unwrap_or_default();
        if kind.namespaced && !given.is_empty() && given != namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if metadata["resourceVersion"].as_str().is_some_and(|v| !v.is_empty() && v != "0") {
            return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        if metadata["name"].as_str().unwrap_or_default().is_empty()
            && let Some(prefix) = metadata["generateName"].as_str().filter(|p| !p.is_empty())
        {
            let prefix = &prefix[..prefix.len().min(58)];
            metadata["name"] = format!("{prefix}{}", self.random.suffix()).into();
        }
        let Some(fields) = metadata.as_object_mut() else { return Ok(()) };
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
            "resourceVersion",
        ] {
            fields.remove(field);
        }
        if kind.namespaced {
            fields.insert("namespace".into(), namespace.into());
        } else {
            fields.remove("namespace");
        }
        fields.insert("uid".into(), uid.into());
        fields.insert("creationTimestamp".into(), now);
        if has_generation(kind) {
            fields.insert("generation".into(), 1.into());
        }
        Ok(())
    }

    fn check_namespace(&self, kind: &Kind, namespace: &str, object: &Value) -> Result<(), Refusal> {
        if !kind.namespaced {
            return Ok(());
        }
        let Some(found) = self.find("Namespace", "", namespace) else {
            let Some(namespaces) = self.kind("Namespace") else { return Ok(()) };
            return Err(Refusal::not_found(&namespaces, namespace));
        };
        if is_terminating(&found.value) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut refusal = Refusal::forbidden(kind, meta(object, "name"), &why);
            refusal.details["causes"] = json!([{
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {namespace} is being terminated"),
            }]);
            return Err(refusal);
        }
        Ok(())
    }
}

/// True if the server maintains `generation` for the kind.
pub(crate) fn has_generation(kind: &Kind) -> bool {
    kind.is_custom()
        || matches!(
            kind.kind.as_str(),
            "StatefulSet" | "Deployment" | "Job" | "Pod" | "CustomResourceDefinition"
        )
}

/// Checks that a body has the kind of the path.
pub(crate) fn check_type(kind: &Kind, body: &Value) -> Result<(), Refusal> {
    let (version, name) =
        (body["apiVersion"].as_str().unwrap_or_default(), body["kind"].as_str().unwrap_or_default());
    if kind.is_custom() && (version.is_empty() || name.is_empty()) {
        let missing = if name.is_empty() { "kind" } else { "apiVersion" };
        return Err(Refusal::bad_request(format!("Object '{}' is missing in '{body}'", capital(missing))));
    }
    if (!version.is_empty() && version != kind.api_version()) || (!name.is_empty() && name != kind.kind) {
        return Err(Refusal::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {}: no kind {name:?} is registered for this resource",
            kind.kind
        )));
    }
    Ok(())
}

fn capital(field: &str) -> &str {
    if field == "kind" { "Kind" } else { "apiVersion" }
}

pub(crate) fn warnings(options: &WriteOptions, unknown: &[String]) -> Vec<String> {
    if options.validation == FieldValidation::Warn {
        unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
    } else {
        Vec::new()
    }
}

/// The fields that the two API groups of events name differently: core, and events.k8s.io.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Events of both groups are the same objects, stored as events.k8s.io.
pub(crate) fn stored_form(kind: &Kind, mut object: Value) -> Value {
    if kind.is("Event") && kind.group.is_empty() {
        rename(&mut object, EVENT_FIELDS.iter().map(|(a, b)| (*a, *b)));
        object["apiVersion"] = "events.k8s.io/v1".into();
    }
    object
}

/// An object in the form of this kind.
pub(crate) fn shown_form(kind: &Kind, object: &Arc<Object>) -> Arc<Object> {
    if kind.is("Event") && kind.group.is_empty() {
        return Object::new(object.version, shown_value(kind, &object.value).into_owned());
    }
    object.clone()
}

/// A stored value in the form of this kind; mostly unchanged.
pub(crate) fn shown_value<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    if !(kind.is("Event") && kind.group.is_empty()) {
        return Cow::Borrowed(stored);
    }
    let mut value = stored.clone();
    rename(&mut value, EVENT_FIELDS.iter().map(|(a, b)| (*b, *a)));
    value["apiVersion"] = "v1".into();
    Cow::Owned(value)
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}
