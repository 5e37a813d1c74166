//! The definitions of the custom resources as they are installed: what the types derive, plus the validation
//! rules, less what would make a stored object hard to live with.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::rules::{self, Rule};
use super::{NodeDeployment, StatefulNode};

/// Both CRDs, NodeDeployment first.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut fleet = NodeDeployment::crd();
    // A template says nothing about one node; the rules tell who tries.
    if let Some(schema) = root(&mut fleet)
        && let Some(suspend) = descend(schema, "spec.template.spec.suspend")
    {
        suspend.default = None;
    }
    vec![
        finished(fleet, &[("", rules::NODE_DEPLOYMENT), ("spec.template.spec", rules::NODE_SPEC)]),
        finished(StatefulNode::crd(), &[("", rules::STATEFUL_NODE), ("spec", rules::NODE_SPEC)]),
    ]
}

/// A derived definition as it is installed: with these rules, each list of them below a place in the schema.
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

/// Both CRDs as YAML documents, each begun by `---`. `deploy/crds/` holds the same.
#[must_use]
pub fn crds_yaml() -> String {
    crds().iter().map(yaml).collect()
}

/// A definition as a YAML document, begun by `---`.
#[must_use]
pub fn yaml(crd: &CustomResourceDefinition) -> String {
    let text = serde_json::to_value(crd)
        .map_err(|e| e.to_string())
        .and_then(|value| serde_saphyr::to_string(&whole_numbers(value)).map_err(|e| e.to_string()));
    // A CRD has neither a key that is no string nor a number that JSON lacks, so that neither step can fail.
    format!("---\n{}", text.unwrap_or_default())
}

/// Bounds are floats in the CRD's type; `minimum: 0.0` reads badly.
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
    // Declared only so that rules may report on it.
    let name = JSONSchemaProps { type_: Some("string".to_owned()), ..JSONSchemaProps::default() };
    let metadata = JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some(std::iter::once(("name".to_owned(), name)).collect()),
        ..JSONSchemaProps::default()
    };
    root.properties.get_or_insert_default().insert("metadata".to_owned(), metadata);
    every(root, &|schema| {
        // An `Option` would let `null` be stored; the server drops nulls of fields that are not nullable.
        schema.nullable = None;
    });
    if let Some(status) = descend(root, "status") {
        every(status, &|schema| open(schema));
    }
}

/// A status is written by an operator that may be newer, or older, than the installed CRD: nothing that it writes may
/// be refused or dropped for that.
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
        // A rule whose place is gone is found by a test, which counts them.
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

#[cfg(test)]
mod tests;
