//! Server-side apply, to the extent that people and operators use it: sets fields, merges lists by their keys, and
//! removes what a manager no longer applies. Fields written by other operations have no recorded owner, so only
//! applying managers can conflict; `managedFields` is never shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::kinds::{Kind, Shape};
use super::super::refusal::Refusal;
use super::super::store::{Key, meta};
use super::super::types::{self, Type};
use super::super::world::World;
use super::create::{Written, shown_value};
use super::{FieldValidation, Part, WriteOptions, create, read_body, strict_sentence, unreadable};

impl World {
    pub(crate) fn apply(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        if options.manager.is_empty() {
            return Err(Refusal::unprocessable(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        create::check_type(kind, body)?;
        let read = read_body(kind, body.clone()).map_err(|why| unreadable(kind, &why))?;
        if options.validation == FieldValidation::Strict && !read.unknown.is_empty() {
            return Err(unreadable(kind, &strict_sentence(&read.unknown)));
        }
        let mut wanted = body.clone();
        if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
            metadata.remove("managedFields");
        }
        let Some(old) = self.store.get(kind.shelf, key).cloned() else {
            return self.apply_new(kind, key, part, wanted, options);
        };
        let uid = old.uid().to_owned();
        let others: Vec<&Value> = self
            .applied
            .range((uid.clone(), String::new())..)
            .take_while(|((u, _), _)| *u == uid)
            .filter(|((_, manager), _)| *manager != options.manager)
            .map(|(_, value)| value)
            .collect();
        let mut new = shown_value(kind, &old.value).into_owned();
        let root = Schema::of(kind);
        if !options.force
            && let Some(path) = others.iter().find_map(|other| conflict(&root, other, &wanted, &new, ""))
        {
            let why = format!("Apply failed with 1 conflict: conflict with another manager: {path}");
            let mut refusal = Refusal::new(409, "Conflict", why.clone());
            refusal.details =
                json!({"causes": [{"reason": "FieldManagerConflict", "message": why, "field": path}]});
            return Err(refusal);
        }
        if let Some(before) = self.applied.get(&(uid.clone(), options.manager.clone())) {
            let keep: Vec<&Value> = others.iter().copied().chain([&wanted]).collect();
            take_away(&root, &mut new, before, &keep);
        }
        merge(&root, &mut new, &wanted);
        let read = read_body(kind, new).map_err(|why| unreadable(kind, &why))?;
        let patch = WriteOptions { patch: true, ..options.clone() };
        let object = self.change(kind, key, part, &old, read.value, &patch)?;
        if !options.dry_run {
            self.applied.insert((uid, options.manager.clone()), wanted);
        }
        Ok(Written { object, warnings: create::warnings(options, &read.unknown), created: false })
    }

    fn apply_new(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        mut wanted: Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        if part == Part::Status {
            return Err(Refusal::not_found(kind, &key.1));
        }
        if !meta(&wanted, "uid").is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta(&wanted, "uid")
            );
            return Err(Refusal::conflict(kind, &key.1, &why));
        }
        wanted["metadata"]["name"] = key.1.clone().into();
        let applied = wanted.clone();
        // The real server creates a missing object even if a version was given.
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let written = self.create(kind, &key.0, wanted, options)?;
        if !options.dry_run {
            self.applied.insert((written.object.uid().to_owned(), options.manager.clone()), applied);
        }
        Ok(written)
    }
}

/// How apply merges a field.
enum Schema<'a> {
    Go(&'a Type),
    Struct(types::StructId),
    Custom(&'a Value),
    Root(&'a Shape),
    Leaf,
}

enum ListKind {
    Atomic,
    Set,
    Keys(Vec<String>),
}

impl<'a> Schema<'a> {
    fn of(kind: &'a Kind) -> Self {
        Self::Root(&kind.shape)
    }

    fn field(&self, name: &str) -> (Schema<'a>, ListKind) {
        match self {
            Self::Root(Shape::Builtin(id)) | Self::Go(Type::Struct(id)) | Self::Struct(id) => {
                go_field(*id, name)
            }
            Self::Root(Shape::Custom(schema)) if name != "metadata" => custom_field(schema.source(), name),
            Self::Root(_) => {
                (types::find("meta.ObjectMeta").map_or(Self::Leaf, Self::Struct), ListKind::Atomic)
            }
            Self::Go(Type::Pointer(inner)) => Schema::Go(inner).field(name),
            Self::Go(Type::Map(inner)) => (Schema::Go(inner), ListKind::Atomic),
            Self::Custom(schema) => custom_field(schema, name),
            _ => (Self::Leaf, ListKind::Atomic),
        }
    }

    fn items(&self) -> Schema<'a> {
        match self {
            Self::Go(Type::List(inner)) => Schema::Go(inner),
            Self::Go(Type::Pointer(inner)) => Schema::Go(inner).items(),
            Self::Custom(schema) => Schema::Custom(&schema["items"]),
            _ => Self::Leaf,
        }
    }
}

fn go_field<'a>(id: types::StructId, name: &str) -> (Schema<'a>, ListKind) {
    let Some(field) = types::get(id).fields.get(name) else { return (Schema::Leaf, ListKind::Atomic) };
    let list = if field.is_set || field.merge_key.as_deref() == Some("") {
        ListKind::Set
    } else if field.map_keys.is_empty() {
        ListKind::Atomic
    } else {
        ListKind::Keys(field.map_keys.clone())
    };
    (Schema::Go(&field.ty), list)
}

fn custom_field<'a>(schema: &'a Value, name: &str) -> (Schema<'a>, ListKind) {
    let field = match schema["properties"].get(name) {
        Some(field) => field,
        None => &schema["additionalProperties"],
    };
    let list = match field["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Keys(
            field["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect(),
        ),
        _ => ListKind::Atomic,
    };
    (Schema::Custom(field), list)
}

/// The keys of a list's item, with the API's defaults.
fn keys_of(item: &Value, keys: &[String]) -> BTreeMap<String, Value> {
    let default = |key: &str| if key == "protocol" { "TCP".into() } else { Value::Null };
    keys.iter().map(|key| (key.clone(), item.get(key).cloned().unwrap_or_else(|| default(key)))).collect()
}

fn merge(schema: &Schema<'_>, target: &mut Value, wanted: &Value) {
    let Some(fields) = wanted.as_object() else {
        *target = wanted.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in fields {
        let (field, list) = schema.field(name);
        match (value, list) {
            (Value::Array(items), ListKind::Set) => {
                let have = target[name].as_array().cloned().unwrap_or_default();
                let new = items.iter().filter(|item| !have.contains(item)).cloned();
                target[name] = have.iter().cloned().chain(new).collect();
            }
            (Value::Array(items), ListKind::Keys(keys)) => {
                let mut have = target[name].as_array().cloned().unwrap_or_default();
                let item_schema = field.items();
                for item in items {
                    let wanted_keys = keys_of(item, &keys);
                    match have.iter_mut().find(|h| keys_of(h, &keys) == wanted_keys) {
                        Some(found) => merge(&item_schema, found, item),
                        None => have.push(item.clone()),
                    }
                }
                target[name] = have.into();
            }
            (Value::Object(_), _) => merge(&field, &mut target[name], value),
            _ => target[name] = value.clone(),
        }
    }
}

/// Removes from `target` what `before` had and none of `retained` has.
fn take_away(schema: &Schema<'_>, target: &mut Value, before: &Value, retained: &[&Value]) {
    let (Some(fields), Some(map)) = (before.as_object(), target.as_object_mut()) else { return };
    for (name, old) in fields {
        let (field, list) = schema.field(name);
        let still: Vec<&Value> =
            retained.iter().filter_map(|k| k.get(name)).filter(|v| !v.is_null()).collect();
        if matches!(name.as_str(), "apiVersion" | "kind") || !map.contains_key(name) {
            continue;
        }
        match (old, list) {
            (Value::Array(items), ListKind::Set) => {
                if let Some(have) = map[name].as_array_mut() {
                    let is_retained = |item: &Value| {
                        still.iter().any(|s| s.as_array().is_some_and(|list| list.contains(item)))
                    };
                    have.retain(|item| !items.contains(item) || is_retained(item));
                }
            }
            (Value::Array(items), ListKind::Keys(keys)) => {
                let item_schema = field.items();
                let Some(have) = map[name].as_array_mut() else { continue };
                for item in items {
                    let ours = keys_of(item, &keys);
                    let others: Vec<&Value> = still
                        .iter()
                        .filter_map(|s| s.as_array()?.iter().find(|i| keys_of(i, &keys) == ours))
                        .collect();
                    let Some(index) = have.iter().position(|h| keys_of(h, &keys) == ours) else { continue };
                    if others.is_empty() {
                        have.remove(index);
                    } else {
                        take_away(&item_schema, &mut have[index], item, &others);
                    }
                }
            }
            (Value::Object(_), _) if map[name].is_object() => {
                take_away(&field, &mut map[name], old, &still);
                if still.is_empty() && map[name].as_object().is_some_and(Map::is_empty) {
                    map.remove(name);
                }
            }
            _ if still.is_empty() => {
                map.remove(name);
            }
            _ => {}
        }
    }
}

/// The first field that `wanted` would change and another manager has applied.
fn conflict(schema: &Schema<'_>, other: &Value, wanted: &Value, live: &Value, path: &str) -> Option<String> {
    for (name, value) in wanted.as_object()? {
        let Some(theirs) = other.get(name) else { continue };
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") || name == "name" {
            continue;
        }
        let (field, list) = schema.field(name);
        let here = format!("{path}.{name}");
        match (value, list) {
            (Value::Object(_), _) => {
                if let Some(found) = conflict(&field, theirs, value, &live[name], &here) {
                    return Some(found);
                }
            }
            (Value::Array(_), ListKind::Set) => {}
            (Value::Array(items), ListKind::Keys(keys)) => {
                let item_schema = field.items();
                for item in items {
                    let ours = keys_of(item, &keys);
                    let find = |list: &Value| -> Option<Value> {
                        list.as_array()?.iter().find(|i| keys_of(i, &keys) == ours).cloned()
                    };
                    if let (Some(theirs), Some(live)) = (find(theirs), find(&live[name]))
                        && let Some(found) = conflict(&item_schema, &theirs, item, &live, &here)
                    {
                        return Some(found);
                    }
                }
            }
            _ if live[name] != *value => return Some(here),
            _ => {}
        }
    }
    None
}
