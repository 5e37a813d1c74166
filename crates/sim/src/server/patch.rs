//! PATCH: four formats, one implementation of the change.

use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::Value;

use super::super::kinds::{Kind, Shape};
use super::super::refusal::Refusal;
use super::super::store::Key;
use super::super::world::World;
use super::create::{Written, shown_value};
use super::{FieldValidation, Part, WriteOptions, create, read_body, strategic, strict_sentence};

/// The format of a patch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// The format for a content type and a kind.
    pub(crate) fn of(content_type: &str, kind: &Kind) -> Result<Self, Refusal> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if matches!(kind.shape, Shape::Builtin(_)) => {
                Ok(Self::Strategic)
            }
            "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Self::Apply),
            // As the real server words it for a built-in kind.
            _ if !kind.is_custom() => {
                Err(Refusal::new(415, "UnsupportedMediaType", "415: Unsupported Media Type"))
            }
            _ => Err(Refusal::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }
}

impl World {
    /// Patches an object. Only an apply creates one.
    pub(crate) fn patch(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        how: PatchKind,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        if how == PatchKind::Apply {
            return self.apply(kind, key, part, body, options);
        }
        let old = self.store.get(kind.shelf, key).cloned();
        let old = old.ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        let made = || patched(kind, how, shown_value(kind, &old.value).into_owned(), body);
        // The error shows the patched object; it is computed again for that.
        let unreadable = |why: &str| match made() {
            Ok(patched) => unreadable_patch(&patched.to_string(), why),
            Err(refusal) => refusal,
        };
        let read = read_body(kind, made()?).map_err(|why| unreadable(&why))?;
        if options.validation == FieldValidation::Strict && !read.unknown.is_empty() {
            return Err(unreadable(&strict_sentence(&read.unknown)));
        }
        let warnings = create::warnings(options, &read.unknown);
        let options = WriteOptions { patch: true, ..options.clone() };
        let object = self.change(kind, key, part, &old, read.value, &options)?;
        Ok(Written { object, warnings, created: false })
    }
}

/// The patched object, not decoded yet.
pub(crate) fn patched(
    kind: &Kind,
    how: PatchKind,
    mut object: Value,
    patch: &Value,
) -> Result<Value, Refusal> {
    match how {
        PatchKind::Json => {
            for operation in operations(patch)? {
                let operation = as_go_takes_it(operation, &object);
                // A failed patch is discarded, so nothing has to be undone.
                json_patch::patch_unsafe(&mut object, &[operation]).map_err(|_| {
                    Refusal::unprocessable("the server rejected our request due to an error in our request")
                })?;
            }
        }
        PatchKind::Strategic => {
            let Shape::Builtin(id) = kind.shape else {
                return Err(Refusal::unsupported_media("application/merge-patch+json"));
            };
            strategic::merge(id, &mut object, patch);
        }
        PatchKind::Merge | PatchKind::Apply => merge(&mut object, patch),
    }
    Ok(object)
}

/// The operations of a JSON patch. The common ones are parsed here: the crate parses each operation twice.
fn operations(patch: &Value) -> Result<Vec<PatchOperation>, Refusal> {
    let plain = |operation: &Value| {
        let field = |name: &str| operation.get(name);
        let path = || PointerBuf::parse(field("path")?.as_str()?).ok();
        match field("op")?.as_str()? {
            "add" => {
                Some(PatchOperation::Add(AddOperation { path: path()?, value: field("value")?.clone() }))
            }
            "remove" => Some(PatchOperation::Remove(RemoveOperation { path: path()? })),
            _ => None,
        }
    };
    if let Some(operations) = patch.as_array().and_then(|list| list.iter().map(plain).collect()) {
        return Ok(operations);
    }
    let patch = json_patch::Patch::deserialize(patch)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    Ok(patch.0)
}

/// Go's library treats a `replace` of a missing value as an `add`, against RFC 6902.
fn as_go_takes_it(operation: PatchOperation, object: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
            PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
        }
        other => other,
    }
}

/// RFC 7386, except that Go's library also removes nulls from objects in lists.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = without_nulls(patch);
        return;
    };
    if !target.is_object() {
        *target = without_nulls(patch);
        return;
    }
    let Some(map) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            map.remove(name);
        } else if let Some(found) = map.get_mut(name) {
            merge(found, value);
        } else {
            map.insert(name.clone(), without_nulls(value));
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// The real server reports the patch, without kind and name, and shows the resulting object.
fn unreadable_patch(patched: &str, why: &str) -> Refusal {
    let mut refusal =
        Refusal::unprocessable(format!(" \"\" is invalid: patch: Invalid value: {patched:?}: {why}"));
    refusal.details = serde_json::json!({
        "causes": [{"reason": "FieldValueInvalid", "field": "patch",
            "message": format!("Invalid value: {patched:?}: {why}")}],
    });
    refusal
}
