//! A CRD's own schema: what it prunes, defaults and refuses. CEL rules are `kube-cel`'s work.

mod rules;
mod structure;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::refusal::Cause;
use rules::Rules;

/// One version's schema, ready to be used.
#[derive(Debug)]
pub(crate) struct CustomSchema {
    source: Value,
    rules: Rules,
}

/// Schemas by their text: compiling CEL is slow, and every cluster of a process has the same few.
static COMPILED: LazyLock<Mutex<BTreeMap<String, Arc<CustomSchema>>>> = LazyLock::new(Mutex::default);

impl CustomSchema {
    /// The schema of this source, compiled once in a process.
    pub(crate) fn compiled(source: &Value) -> Arc<Self> {
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled
            .entry(source.to_string())
            .or_insert_with(|| Arc::new(Self { rules: Rules::compile(source), source: source.clone() }))
            .clone()
    }

    /// The schema as the definition has it.
    pub(crate) fn source(&self) -> &Value {
        &self.source
    }

    /// Drops fields that the schema does not have and returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        structure::prune(&self.source, object, "", true, &mut dropped);
        dropped
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        structure::default(&self.source, object, true);
    }

    /// What is refused; what an update leaves as it was is not looked at again.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        structure::validate(&self.source, object, old, "", true, &mut causes);
        if causes.iter().any(Cause::blocks_rules) {
            causes.push(Cause::rules_unchecked());
            return causes;
        }
        causes.extend(self.rules.check(object, old));
        causes
    }

    /// What is refused in a write to the status.
    pub(crate) fn validate_status(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.validate(object, old)
    }
}
