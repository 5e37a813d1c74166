//! PUT, and the second half of PATCH: changes an object under the rules of its kind.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::admission::{self, policy::Operation};
use super::super::kinds::Kind;
use super::super::refusal::{Cause, Refusal};
use super::super::store::{Key, Object, is_terminating, meta};
use super::super::world::World;
use super::create::{Written, has_generation, shown_form, shown_value, stored_form};
use super::{FieldValidation, Part, WriteOptions, create, read_body, strict_sentence, unreadable};

/// The metadata fields that only the server writes.
const OWN_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
];

impl World {
    /// Replaces an object by a body.
    pub(crate) fn replace(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        create::check_type(kind, &body)?;
        let read = read_body(kind, body).map_err(|why| unreadable(kind, &why))?;
        if options.validation == FieldValidation::Strict && !read.unknown.is_empty() {
            return Err(unreadable(kind, &strict_sentence(&read.unknown)));
        }
        let old = self.store.get(kind.shelf, key).cloned();
        let old = old.ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        if kind.is_custom() && meta(&read.value, "resourceVersion").is_empty() {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            let mut refusal = Refusal::invalid(kind, &key.1, &[cause]);
            refusal.message = refusal.message.replacen(&kind.group_kind(), &kind.resource(), 1);
            return Err(refusal);
        }
        let warnings = create::warnings(options, &read.unknown);
        let object = self.change(kind, key, part, &old, read.value, options)?;
        Ok(Written { object, warnings, created: false })
    }

    /// Changes `old` into `new`, as far as the part and the rules allow.
    pub(crate) fn change(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        old: &Arc<Object>,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, Refusal> {
        let shown = shown_value(kind, &old.value);
        if part == Part::Status && kind.is_custom() {
            // The metadata is not written, so a wrong UID in it is ignored.
            new["metadata"]["uid"] = meta(&shown, "uid").into();
        }
        check_identity(kind, key, &shown, old.version, &new, options.patch)?;
        new["apiVersion"] = kind.api_version().into();
        new["kind"] = kind.kind.clone().into();
        let deletion_time = new_deletion_time(&shown, &new);
        keep_own_fields(&shown, &mut new);
        isolate(kind, part, &shown, &mut new);
        if part == Part::Main {
            admission::default(kind, &mut new, Some(&shown));
            if !options.subresource
                && admission::policy::mutate(&self.policies, &kind.kind, Operation::Update, &mut new)
            {
                admission::default(kind, &mut new, Some(&shown));
            }
            admission::prepare_update(kind, &mut new, &shown);
        }
        // Twice: both the store and the kind's strategy check it.
        let mut causes: Vec<Cause> =
            new_finalizers(&shown, &new).into_iter().flat_map(|c| [c.clone(), c]).collect();
        causes.extend(deletion_time);
        causes.extend(admission::validate_metadata(kind, &new));
        causes.extend(match part {
            Part::Main => admission::validate(self, kind, &new, Some(&shown)),
            Part::Status => admission::validate_status(kind, &new, Some(&shown)),
        });
        if !causes.is_empty() {
            return Err(Refusal::invalid(kind, &key.1, &causes));
        }
        if part == Part::Main {
            admission::allow_update(self, kind, &new, &shown)?;
        }
        if part == Part::Main && has_generation(kind) && spec_differs(kind, &shown, &new) {
            let generation = shown["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = (generation + 1).into();
        }
        new["metadata"]["resourceVersion"] = old.version.to_string().into();
        if new == *shown {
            return Ok(shown_form(kind, old));
        }
        if options.dry_run {
            return Ok(Object::unstored(new));
        }
        Ok(self.store_change(kind, key, new))
    }

    /// Stores a changed object, or removes it with its last finalizer.
    fn store_change(&mut self, kind: &Arc<Kind>, key: &Key, new: Value) -> Arc<Object> {
        let gone = is_terminating(&new)
            && !has_items(&new["metadata"]["finalizers"])
            && !(kind.is("Namespace") && has_items(&new["spec"]["finalizers"]))
            && (new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0);
        let stored = stored_form(kind, new);
        if gone {
            // The caller sees the change; watches see the object before it.
            self.remove(kind, key);
            return shown_form(kind, &Object::new(self.store.version(), stored));
        }
        let object = self.put(kind, key.clone(), stored);
        shown_form(kind, &object)
    }
}

fn has_items(list: &Value) -> bool {
    list.as_array().is_some_and(|items| !items.is_empty())
}

/// Checks that the body matches the path, the stored version and the UID.
fn check_identity(
    kind: &Kind,
    key: &Key,
    old: &Value,
    version: u64,
    new: &Value,
    patch: bool,
) -> Result<(), Refusal> {
    let name = meta(new, "name");
    if name != key.1 {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.1
        )));
    }
    let namespace = meta(new, "namespace");
    if kind.namespaced && !namespace.is_empty() && namespace != key.0 {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let uid = meta(new, "uid");
    if !uid.is_empty() && uid != meta(old, "uid") {
        if patch {
            let cause = Cause::invalid("metadata.uid", &new["metadata"]["uid"], "field is immutable");
            // Twice: both the store and the kind's strategy check it.
            return Err(Refusal::invalid(kind, &key.1, &[cause.clone(), cause]));
        }
        let group = if kind.is_custom() { format!("{}/", kind.group) } else { String::new() };
        let namespace = if kind.namespaced { format!("{}/", key.0) } else { String::new() };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{namespace}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            kind.plural,
            key.1,
            meta(old, "uid")
        );
        return Err(Refusal::conflict(kind, &key.1, &why));
    }
    let wanted = meta(new, "resourceVersion");
    if !wanted.is_empty() && wanted != "0" && wanted != version.to_string() {
        return Err(Refusal::stale(kind, &key.1));
    }
    Ok(())
}

fn keep_own_fields(old: &Value, new: &mut Value) {
    let (Some(source), Some(target)) = (old["metadata"].as_object(), new["metadata"].as_object_mut()) else {
        return;
    };
    for field in OWN_FIELDS {
        match source.get(field) {
            Some(value) => target.insert(field.to_owned(), value.clone()),
            None => target.remove(field),
        };
    }
    if let Some(namespace) = source.get("namespace") {
        target.insert("namespace".into(), namespace.clone());
    }
    target.remove("managedFields");
}

/// Resets the parts of the object that this write may not change.
fn isolate(kind: &Kind, part: Part, old: &Value, new: &mut Value) {
    match part {
        Part::Main if kind.has_status => set_or_remove(new, "status", &old["status"]),
        Part::Main => {}
        Part::Status => {
            let (Some(now), Some(before)) = (new.as_object_mut(), old.as_object()) else { return };
            // A status write of a built-in kind may change labels, too; one of a custom kind may not.
            let is_written = |name: &str| name == "status" || (name == "metadata" && !kind.is_custom());
            now.retain(|name, _| is_written(name) || before.contains_key(name));
            for (name, value) in before.iter().filter(|(name, _)| !is_written(name)) {
                // Most are unchanged, and comparing is cheaper than copying.
                if now.get(name) != Some(value) {
                    now.insert(name.clone(), value.clone());
                }
            }
            if now.get("status").is_some_and(Value::is_null) {
                now.remove("status");
            }
        }
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        if let Some(map) = object.as_object_mut() {
            map.remove(field);
        }
    } else if object.get(field) != Some(value) {
        object[field] = value.clone();
    }
}

fn spec_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    if !kind.is_custom() {
        return old["spec"] != new["spec"];
    }
    let is_content = |name: &str| name != "metadata" && !(kind.has_status && name == "status");
    let before = old.as_object().into_iter().flatten().filter(|(name, _)| is_content(name));
    let after = new.as_object().into_iter().flatten().filter(|(name, _)| is_content(name));
    !before.eq(after)
}

/// Only a DELETE sets the deletionTimestamp.
fn new_deletion_time(old: &Value, new: &Value) -> Option<Cause> {
    let field = "metadata.deletionTimestamp";
    let given = &new["metadata"]["deletionTimestamp"];
    (!is_terminating(old) && given.is_string()).then(|| Cause::invalid(field, given, "field is immutable"))
}

fn new_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    if !is_terminating(old) {
        return None;
    }
    let finalizers = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let added: Vec<String> = new["metadata"]["finalizers"]
        .as_array()?
        .iter()
        .filter(|f| !finalizers.contains(f))
        .filter_map(|f| f.as_str().map(|f| format!("{f:?}")))
        .collect();
    (!added.is_empty()).then(|| {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        Cause::forbidden("metadata.finalizers", &why)
    })
}
