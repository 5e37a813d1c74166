//! The `OpenAPI` v3 documents, one for each group and version, for `kubectl explain`, and for `kubectl apply`, which
//! reads how lists are merged and what the server validates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::kinds::{Kind, Kinds, Shape};
use super::super::refusal::Refusal;
use super::super::types::{self, Field, StructId, Type};

const PREFIX: &str = "/openapi/v3";
const OBJECT_META: &str = "meta.ObjectMeta";

/// `/openapi/v3` and its documents; `None` for other paths.
pub(crate) fn answer(kinds: &Kinds, path: &str) -> Option<Result<Value, Refusal>> {
    let rest = path.strip_prefix(PREFIX)?.trim_matches('/');
    if rest.is_empty() {
        return Some(Ok(index(kinds)));
    }
    let (group, version) = match rest.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return Some(Err(Refusal::no_such_path())),
    };
    let served: Vec<&Kind> =
        kinds.all().map(AsRef::as_ref).filter(|k| k.group == group && k.version == version).collect();
    if served.is_empty() {
        return Some(Err(Refusal::no_such_path()));
    }
    Some(Ok(document(&served)))
}

fn index(kinds: &Kinds) -> Value {
    let paths: BTreeMap<String, Value> = kinds
        .all()
        .map(|kind| {
            let path = base(kind);
            let url = format!("{PREFIX}/{path}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// `api/v1`, or `apis/apps/v1`.
fn base(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}", kind.api_version())
    }
}

fn document(served: &[&Kind]) -> Value {
    let mut schemas = Map::new();
    let mut wanted: BTreeSet<StructId> = types::find(OBJECT_META).into_iter().collect();
    let mut paths = Map::new();
    for kind in served {
        let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let (name, mut schema) = match &kind.shape {
            Shape::Builtin(id) => {
                wanted.extend(uses(*id));
                (schema_name(&types::get(*id).name), struct_schema(*id))
            }
            Shape::Custom(custom) => (custom_name(kind), custom_schema(custom.source())),
            Shape::Free => (custom_name(kind), json!({"type": "object"})),
        };
        schema["x-kubernetes-group-version-kind"] = json!([gvk]);
        schemas.insert(name, schema);
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{}{scope}/{}", base(kind), kind.plural);
        let parameters: Value = ["dryRun", "fieldManager", "fieldValidation"]
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .into_iter()
            .collect();
        let acts = |verb: &str, parameters: &Value| {
            json!({"x-kubernetes-action": verb, "x-kubernetes-group-version-kind": gvk, "parameters": parameters,
                "responses": {"200": {"description": "OK"}}})
        };
        let none = json!([]);
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({
                "get": acts("get", &none), "put": acts("put", &parameters), "patch": acts("patch", &parameters),
                "delete": acts("delete", &parameters),
            }),
        );
        paths.insert(collection, json!({"get": acts("list", &none), "post": acts("post", &parameters)}));
    }
    for id in closure(wanted) {
        schemas.entry(schema_name(&types::get(id).name)).or_insert_with(|| struct_schema(id));
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3-windlass"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// A definition's schema, with the fields that every object has.
fn custom_schema(source: &Value) -> Value {
    let mut schema = source.clone();
    say_number_or_text(&mut schema);
    let text = |what: &str| json!({"type": "string", "description": what});
    schema["properties"]["apiVersion"] = text("The group and version of this kind.");
    schema["properties"]["kind"] = text("The name of this kind.");
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.", "allOf": [reference(OBJECT_META)],
    });
    schema
}

/// Declares int-or-string fields as either.
fn say_number_or_text(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(say_number_or_text);
            if map.get("x-kubernetes-int-or-string").is_some_and(|said| *said == true) {
                map.entry("anyOf").or_insert_with(|| json!([{"type": "integer"}, {"type": "string"}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(say_number_or_text),
        _ => {}
    }
}

/// `dev.windlass.v1alpha1.NodeDeployment`.
fn custom_name(kind: &Kind) -> String {
    let group: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// `io.k8s.api.core.v1.Pod` for `core.Pod`.
fn schema_name(name: &str) -> String {
    match name.split_once('.') {
        Some(("meta", name)) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        Some((package, name)) => format!("io.k8s.api.{package}.v1.{name}"),
        None => name.to_owned(),
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", schema_name(name))})
}

/// The structs of a struct's fields.
fn uses(id: StructId) -> Vec<StructId> {
    fn inner(ty: &Type) -> Option<StructId> {
        match ty {
            Type::Pointer(ty) | Type::List(ty) | Type::Map(ty) => inner(ty),
            Type::Struct(id) => Some(*id),
            _ => None,
        }
    }
    types::get(id).fields.values().filter_map(|field| inner(&field.ty)).collect()
}

/// These structs and all that they refer to.
fn closure(mut open: BTreeSet<StructId>) -> BTreeSet<StructId> {
    let mut all = BTreeSet::new();
    while let Some(id) = open.pop_first() {
        if all.insert(id) {
            open.extend(uses(id).into_iter().filter(|id| !all.contains(id)));
        }
    }
    all
}

fn struct_schema(id: StructId) -> Value {
    let fields = &types::get(id).fields;
    let properties: Map<String, Value> =
        fields.iter().map(|(name, field)| (name.clone(), field_schema(field))).collect();
    json!({"type": "object", "properties": properties})
}

fn field_schema(field: &Field) -> Value {
    let mut schema = type_schema(&field.ty);
    if let Some(key) = &field.merge_key {
        schema["x-kubernetes-patch-strategy"] = "merge".into();
        if !key.is_empty() {
            schema["x-kubernetes-patch-merge-key"] = key.clone().into();
        }
    }
    if !field.map_keys.is_empty() {
        schema["x-kubernetes-list-type"] = "map".into();
        schema["x-kubernetes-list-map-keys"] = json!(field.map_keys);
    } else if field.is_set {
        schema["x-kubernetes-list-type"] = "set".into();
    }
    schema
}

fn type_schema(ty: &Type) -> Value {
    match ty {
        Type::Pointer(ty) => type_schema(ty),
        Type::List(item) => json!({"type": "array", "items": type_schema(item)}),
        Type::Map(value) => json!({"type": "object", "additionalProperties": type_schema(value)}),
        Type::Text => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Float => json!({"type": "number", "format": "double"}),
        Type::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Type::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Type::Raw => json!({"type": "object"}),
        Type::Struct(id) => json!({"allOf": [reference(&types::get(*id).name)]}),
    }
}
