//! CEL rules: `x-kubernetes-validations`.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use kube_cel::{CompiledSchema, Validator, compile_schema};
use regex::Regex;
use serde_json::Value;

use super::super::refusal::Cause;

/// The rules of one schema.
pub(super) struct Rules {
    compiled: CompiledSchema,
    any: bool,
    in_status: bool,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("any", &self.any).field("in_status", &self.in_status).finish()
    }
}

thread_local! {
    static VALIDATOR: Validator = Validator::new();
}

impl Rules {
    pub(super) fn compile(schema: &Value) -> Self {
        Self {
            compiled: compile_schema(schema),
            any: has_rules(schema),
            in_status: has_rules(&schema["properties"]["status"]),
        }
    }

    /// The rules that an object breaks. A rule over what an update leaves as it was is not held against it.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        if !self.any || old.is_some_and(|old| self.untouched(object, old)) {
            return Vec::new();
        }
        let result = VALIDATOR.with(|validator| validator.validate_compiled(&self.compiled, object, old));
        let Err(errors) = result else { return Vec::new() };
        errors
            .into_vec()
            .into_iter()
            .filter_map(|error| {
                let value = at(object, &error.field_path);
                let before = old.map(|old| at(old, &error.field_path));
                if before == Some(value) && !error.rule.contains("oldSelf") {
                    return None;
                }
                let field = if error.field_path.is_empty() { "<nil>" } else { &error.field_path };
                Some(match error.reason.as_deref() {
                    Some("FieldValueForbidden") => Cause::forbidden(field, &error.message),
                    Some("FieldValueRequired") => Cause::required(field, &error.message),
                    Some("FieldValueDuplicate") => Cause::duplicate(field, value),
                    _ => Cause::invalid(field, value, &error.message),
                })
            })
            .collect()
    }

    /// Whether nothing that a rule may look at has changed.
    fn untouched(&self, object: &Value, old: &Value) -> bool {
        object["spec"] == old["spec"]
            && object["metadata"]["name"] == old["metadata"]["name"]
            && (!self.in_status || object["status"] == old["status"])
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// The value at a path such as `spec.list[0].name`.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    let mut found = object;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        found = match step.strip_suffix(']') {
            Some(index) => match index.parse::<usize>() {
                Ok(index) => &found[index],
                Err(_) => &found[index.trim_matches('"')],
            },
            None => &found[step],
        };
    }
    found
}

/// Patterns by their text, compiled once in a process; none where a pattern is broken.
static PATTERNS: LazyLock<Mutex<BTreeMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);

/// Whether a text matches a pattern of a schema.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
    compiled.as_ref().is_some_and(|regex| regex.is_match(text))
}
