//! The CRDs as they are installed: the schemas that are derived from the types, plus the validation rules, minus what
//! would make stored objects hard to handle.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::rules::{self, Rule};
use super::{NodeDeployment, StatefulNode, StatefulSetRollout, stateful_set_rules};

/// The CRDs of fleets, of nodes, and of rollouts of existing StatefulSets.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut fleet = NodeDeployment::crd();
    // `suspend` gets no default in a template, where the rules forbid the field.
    if let Some(schema) = root(&mut fleet)
        && let Some(suspend) = descend(schema, "spec.template.spec.suspend")
    {
        suspend.default = None;
    }
    vec![
        finished(
            fleet,
            &[
                ("", rules::NODE_DEPLOYMENT),
                ("spec.template.spec", rules::NODE_TEMPLATE),
                ("spec.template.spec", rules::NODE_SPEC),
            ],
        ),
        finished(StatefulNode::crd(), &[("", rules::STATEFUL_NODE), ("spec", rules::NODE_SPEC)]),
        finished(without_sets(StatefulSetRollout::crd()), &[("", stateful_set_rules::STATEFUL_SET_ROLLOUT)]),
    ]
}

/// The fields of a fleet's status that a StatefulSetRollout never has, since Windlass creates no revisions and no sets
/// of nodes for it.
const OF_FLEETS_ONLY: [&str; 13] = [
    "selector",
    "activeSet",
    "currentRevision",
    "updateRevision",
    "buildID",
    "sameContent",
    "spentForcePromote",
    "scaledToZero",
    "deletionPolicy",
    "volumeClaimRetention",
    "activeBuildID",
    "retiring",
    "configDigest",
];

fn without_sets(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let status = root(&mut definition).and_then(|schema| descend(schema, "status"));
    if let Some(properties) = status.and_then(|status| status.properties.as_mut()) {
        properties.retain(|name, _| !OF_FLEETS_ONLY.contains(&name.as_str()));
    }
    definition
}

/// A derived CRD in its installed form, with these rules. Each list of rules is attached below a path in the schema.
#[must_use]
pub fn finished(
    mut definition: CustomResourceDefinition,
    rules: &[(&str, &[Rule])],
) -> CustomResourceDefinition {
    if let Some(schema) = root(&mut definition) {
        tidy(schema);
        for (below, rules) in rules {
            attach(schema, below, rules);
        }
    }
    definition
}

/// The CRDs as YAML documents, each starting with `---`. `deploy/crds/` has the same content.
#[must_use]
pub fn crds_yaml() -> String {
    crds().iter().map(yaml).collect()
}

/// A CRD as a YAML document that starts with `---`.
#[must_use]
pub fn yaml(crd: &CustomResourceDefinition) -> String {
    let text = serde_json::to_value(crd)
        .map_err(|e| e.to_string())
        .and_then(|value| serde_saphyr::to_string(&whole_numbers(value)).map_err(|e| e.to_string()));
    // A CRD has only keys that are strings and numbers that JSON can represent, so neither step can fail.
    format!("---\n{}", text.unwrap_or_default())
}

/// Turns whole floats into integers: bounds are floats in the Rust type of a CRD, and `minimum: 0.0` is hard to read.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, field)| (key, whole_numbers(field))).collect(),
        other => other,
    }
}

fn root(crd: &mut CustomResourceDefinition) -> Option<&mut JSONSchemaProps> {
    crd.spec.versions.first_mut()?.schema.as_mut()?.open_api_v3_schema.as_mut()
}

fn tidy(root: &mut JSONSchemaProps) {
    // Declared only so that rules can report errors on it.
    let name = JSONSchemaProps { type_: Some("string".to_owned()), ..JSONSchemaProps::default() };
    let metadata = JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some(std::iter::once(("name".to_owned(), name)).collect()),
        ..JSONSchemaProps::default()
    };
    root.properties.get_or_insert_default().insert("metadata".to_owned(), metadata);
    every(root, &|schema| {
        // The derived schema of an `Option` would allow storing `null`. If a field is not nullable, the API server
        // drops its null.
        schema.nullable = None;
    });
    if let Some(status) = descend(root, "status") {
        every(status, &|schema| open(schema));
    }
}

/// The operator that writes a status may be newer or older than the installed CRD. Nothing that it writes may be
/// rejected or pruned for that reason.
fn open(schema: &mut JSONSchemaProps) {
    schema.required = None;
    schema.enum_ = None;
    schema.default = None;
    if schema.properties.is_some() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
}

fn every(schema: &mut JSONSchemaProps, change: &impl Fn(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        every(property, change);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        every(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        every(values, change);
    }
}

fn attach(root: &mut JSONSchemaProps, below: &str, rules: &[Rule]) {
    for rule in rules {
        // A test counts the rules, and so detects a rule whose path does not exist.
        if let Some(schema) = descend(root, below).and_then(|schema| descend(schema, rule.at)) {
            schema.x_kubernetes_validations.get_or_insert_default().push(rule.to_validation());
        }
    }
}

fn descend<'a>(schema: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(schema, |schema, step| {
        let name = step.trim_end_matches("[]");
        let property = schema.properties.as_mut()?.get_mut(name)?;
        if name == step {
            return Some(property);
        }
        match property.items.as_mut()? {
            JSONSchemaPropsOrArray::Schema(items) => Some(items),
            JSONSchemaPropsOrArray::Schemas(_) => None,
        }
    })
}

/// Invalid objects, and valid ones to compare them with.
#[cfg(any(test, feature = "test-fixtures"))]
#[path = "crd/tests/cases/mod.rs"]
pub mod cases;
#[cfg(test)]
mod tests;
