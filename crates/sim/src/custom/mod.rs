//! The schema of a custom resource: pruning, defaults and validation. `kube-cel` evaluates CEL.

mod rules;
mod shown;
mod structure;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::cause::Cause;
use rules::Rules;
use structure::Path;

/// The paths of the scale subresource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScalePaths {
    pub spec: Vec<String>,
    pub status: Vec<String>,
    pub selector: Option<Vec<String>>,
}

/// The schema of one version, compiled.
#[derive(Debug)]
pub(crate) struct CustomSchema {
    source: Value,
    rules: Rules,
}

/// A cache by source: compiling CEL is slow, and the clusters of a process have the same few schemas.
static COMPILED: LazyLock<Mutex<BTreeMap<String, Arc<CustomSchema>>>> = LazyLock::new(Mutex::default);

impl CustomSchema {
    /// The compiled schema, cached.
    pub(crate) fn compiled(source: &Value) -> Arc<Self> {
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled
            .entry(source.to_string())
            .or_insert_with(|| Arc::new(Self { rules: Rules::compile(source), source: source.clone() }))
            .clone()
    }

    /// The source of the schema.
    pub(crate) fn source(&self) -> &Value {
        &self.source
    }

    /// Removes unknown fields and returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        structure::prune(&self.source, object, &Path::Root, true, &mut dropped);
        dropped
    }

    /// Applies defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        structure::default(&self.source, object, true);
    }

    /// Validates an object; an update is not checked where it changes nothing.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        scale: Option<&ScalePaths>,
    ) -> Vec<Cause> {
        let mut causes = Vec::new();
        structure::validate(&self.source, object, old, &Path::Root, true, &mut causes);
        self.finish(object, old, scale, causes)
    }

    /// Validates a write to the status; paths start there.
    pub(crate) fn validate_status(
        &self,
        object: &Value,
        old: Option<&Value>,
        scale: Option<&ScalePaths>,
    ) -> Vec<Cause> {
        let mut causes = Vec::new();
        let (schema, before) = (&self.source["properties"]["status"], old.map(|old| &old["status"]));
        if object.get("status").is_some() {
            structure::validate(schema, &object["status"], before, &Path::Root, false, &mut causes);
        }
        let causes = causes.into_iter().map(|cause| cause.below("status")).collect();
        self.finish(object, old, scale, causes)
    }

    /// The checks after those of values.
    fn finish(
        &self,
        object: &Value,
        old: Option<&Value>,
        scale: Option<&ScalePaths>,
        mut causes: Vec<Cause>,
    ) -> Vec<Cause> {
        for path in scale.into_iter().flat_map(|scale| [&scale.spec, &scale.status]) {
            causes.extend(check_number(object, path));
        }
        if causes.iter().any(Cause::blocks_rules) {
            causes.push(Cause::rules_unchecked());
            return causes;
        }
        causes.extend(self.rules.check(object, old));
        causes
    }
}

/// Checks that a field of the scale subresource is a number.
fn check_number(object: &Value, path: &[String]) -> Option<Cause> {
    let field = format!(".{}", path.join("."));
    let value = path.iter().fold(object, |at, step| &at[step.as_str()]);
    let (kind, shown) = match value {
        Value::Null => return None,
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            return Some(Cause::invalid(field, value, "should be a non-negative integer"));
        }
        Value::Number(n) if n.is_i64() => return None,
        Value::Number(n) => ("float64", n.to_string()),
        Value::String(text) => ("string", text.clone()),
        Value::Bool(flag) => ("bool", flag.to_string()),
        Value::Array(_) => ("[]interface {}", value.to_string()),
        Value::Object(_) => ("map[string]interface {}", value.to_string()),
    };
    let why = format!("{field} accessor error: {shown} is of the type {kind}, expected int64");
    Some(Cause::invalid(field, &0.into(), &why))
}
