//! The structural part of a schema: pruning, defaults, and value validation.

use serde_json::{Map, Value};

use super::super::cause::Cause;

fn is_true(schema: &Value, field: &str) -> bool {
    schema[field] == true
}

/// True for the fields that every object has.
fn is_own(name: &str, root: bool) -> bool {
    root && matches!(name, "apiVersion" | "kind" | "metadata")
}

/// The path of a value, formatted only for errors.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

/// Removes unknown fields.
pub(super) fn prune(
    schema: &Value,
    value: &mut Value,
    path: &Path<'_>,
    root: bool,
    dropped: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            let preserve = is_true(schema, "x-kubernetes-preserve-unknown-fields");
            let embedded = is_true(schema, "x-kubernetes-embedded-resource");
            let (known, more) = (&schema["properties"], &schema["additionalProperties"]);
            map.retain(|name, value| {
                if is_own(name, root || embedded) {
                    return true;
                }
                let path = Path::Field(path, name);
                let known = known.get(name).or_else(|| more.is_object().then_some(more));
                if let Some(known) = known {
                    prune(known, value, &path, false, dropped);
                    return true;
                }
                let kept = preserve || *more == true;
                if !kept {
                    dropped.push(path.to_string());
                }
                kept
            });
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &Path::Item(path, index), false, dropped);
            }
        }
        _ => {}
    }
}

/// Applies defaults. A null in a non-nullable field counts as absent.
pub(super) fn default(schema: &Value, value: &mut Value, root: bool) {
    match value {
        Value::Object(map) => {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if is_own(name, root) {
                    continue;
                }
                if map.get(name).is_some_and(Value::is_null) && !is_true(field, "nullable") {
                    map.remove(name);
                }
                if let Some(wanted) = field.get("default")
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), wanted.clone());
                }
            }
            for (name, value) in map {
                if is_own(name, root) {
                    continue;
                }
                let known = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                default(known, value, false);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(&schema["items"], item, false)),
        _ => {}
    }
}

/// Validates types, bounds and the like.
pub(super) fn validate(
    schema: &Value,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    root: bool,
    causes: &mut Vec<Cause>,
) {
    if old == Some(value) || !schema.is_object() {
        return;
    }
    if value.is_null() && is_true(schema, "nullable") {
        return;
    }
    if !check_type(schema, value, path, causes) {
        return;
    }
    check_enum(schema, value, path, causes);
    match value {
        Value::Number(_) => check_number(schema, value, path, causes),
        Value::String(text) => check_text(schema, value, text, path, causes),
        Value::Array(items) => check_list(schema, value, items, old, path, causes),
        Value::Object(map) => check_object(schema, map, old, path, root, causes),
        _ => {}
    }
    check_branches(schema, value, path, causes);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(schema: &Value, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) -> bool {
    let found = type_of(value);
    if is_true(schema, "x-kubernetes-int-or-string") {
        if matches!(found, "integer" | "string") {
            return true;
        }
        let why = format!("{path} in body must be of type integer,string: \"{found}\"");
        causes.push(Cause::wrong_type(path, &found.into(), &why));
        return false;
    }
    let Some(wanted) = schema["type"].as_str() else { return true };
    let whole = value.as_f64().is_some_and(|n| n.fract() == 0.0);
    if wanted == found
        || (wanted == "number" && found == "integer")
        || (wanted == "integer" && found == "number" && whole)
    {
        return true;
    }
    let why = format!("{path} in body must be of type {wanted}: \"{found}\"");
    causes.push(Cause::wrong_type(path, &found.into(), &why));
    false
}

fn check_enum(schema: &Value, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> =
            allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        causes.push(Cause::unsupported(path, value, &allowed));
    }
}

fn check_number(schema: &Value, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let number = value.as_f64().unwrap_or_default();
    let bound = |name: &str| schema[name].as_f64();
    let shown =
        |name: &str| schema[name].as_i64().map_or_else(|| schema[name].to_string(), |n| n.to_string());
    if let Some(minimum) = bound("minimum") {
        let exclusive = is_true(schema, "exclusiveMinimum");
        if number < minimum || (exclusive && number <= minimum) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let why = format!("{path} in body should be greater than{or_equal} {}", shown("minimum"));
            causes.push(Cause::invalid(path, value, &why));
        }
    }
    if let Some(maximum) = bound("maximum") {
        let exclusive = is_true(schema, "exclusiveMaximum");
        if number > maximum || (exclusive && number >= maximum) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let why = format!("{path} in body should be less than{or_equal} {}", shown("maximum"));
            causes.push(Cause::invalid(path, value, &why));
        }
    }
    let range = match schema["format"].as_str() {
        Some("int32") => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    };
    if let Some((low, high)) = range
        && !(low..=high).contains(&number)
    {
        let why = format!("{path} in body must be of type int32: {value}");
        causes.push(Cause::invalid(path, value, &why));
    }
}

fn check_text(schema: &Value, value: &Value, text: &str, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    if let Some(limit) = schema["maxLength"].as_u64()
        && length > limit
    {
        causes.push(Cause::too_long(path, limit));
    }
    if let Some(limit) = schema["minLength"].as_u64()
        && length < limit
    {
        let why = format!("{path} in body should be at least {limit} chars long");
        causes.push(Cause::invalid(path, value, &why));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !super::rules::matches(pattern, text)
    {
        let why = format!("{path} in body should match '{pattern}'");
        causes.push(Cause::invalid(path, value, &why));
    }
    if schema["format"] == "date-time" && chrono::DateTime::parse_from_rfc3339(text).is_err() {
        let why = format!("{path} in body must be of type date-time: {value}");
        causes.push(Cause::invalid(path, value, &why));
    }
}

fn check_list(
    schema: &Value,
    value: &Value,
    items: &[Value],
    old: Option<&Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    if let Some(limit) = schema["maxItems"].as_u64()
        && items.len() as u64 > limit
    {
        causes.push(Cause::too_many(path, items.len(), limit));
    }
    if let Some(limit) = schema["minItems"].as_u64()
        && (items.len() as u64) < limit
    {
        let why = format!("{path} in body should have at least {limit} items");
        causes.push(Cause::invalid(path, value, &why));
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or_default();
    let key_of = |item: &Value| -> Value {
        keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect::<Map<_, _>>().into()
    };
    for (index, item) in items.iter().enumerate() {
        let at = Path::Item(path, index);
        match kind {
            "set" if items[..index].contains(item) => causes.push(Cause::duplicate(&at, item)),
            "map" if items[..index].iter().any(|other| key_of(other) == key_of(item)) => {
                causes.push(Cause::duplicate(&at, &key_of(item)));
            }
            _ => {}
        }
        // Only the items of map lists can be matched with their old values.
        let before = match kind {
            "map" => old
                .and_then(Value::as_array)
                .and_then(|list| list.iter().find(|other| key_of(other) == key_of(item))),
            _ => None,
        };
        validate(&schema["items"], item, before, &at, false, causes);
    }
}

fn check_object(
    schema: &Value,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &Path<'_>,
    root: bool,
    causes: &mut Vec<Cause>,
) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            causes.push(Cause::required(&Path::Field(path, name), ""));
        }
    }
    if let Some(limit) = schema["maxProperties"].as_u64()
        && map.len() as u64 > limit
    {
        causes.push(Cause::too_many(path, map.len(), limit));
    }
    for (name, value) in map {
        if is_own(name, root) {
            continue;
        }
        let known = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        validate(known, value, old.and_then(|old| old.get(name)), &Path::Field(path, name), false, causes);
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not` contain only value validations in a structural schema.
fn check_branches(schema: &Value, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let passes = |branch: &Value| {
        let mut found = Vec::new();
        validate(branch, value, None, path, false, &mut found);
        found.is_empty()
    };
    for branch in schema["allOf"].as_array().into_iter().flatten() {
        validate(branch, value, None, path, false, causes);
    }
    if let Some(branches) = schema["anyOf"].as_array()
        && !is_true(schema, "x-kubernetes-int-or-string")
        && !branches.iter().any(passes)
    {
        let why = format!("{path} in body must validate at least one schema (anyOf)");
        causes.push(Cause::invalid(path, value, &why));
    }
    if let Some(branches) = schema["oneOf"].as_array()
        && branches.iter().filter(|branch| passes(branch)).count() != 1
    {
        let why = format!("{path} in body must validate one and only one schema (oneOf)");
        causes.push(Cause::invalid(path, value, &why));
    }
    if schema["not"].is_object() && passes(&schema["not"]) {
        let why = format!("{path} in body must not validate the schema (not)");
        causes.push(Cause::invalid(path, value, &why));
    }
}
