//! Every field of a fleet's spec, from the definition in `deploy/crds`, with values for each: valid ones, those at
//! the limits, and invalid ones. Fields of later versions need no change here.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use windlass_sim::Random;

use crate::walks::values;

/// A field of the spec: its path below `spec`, and its schema.
pub struct Field {
    pub path: String,
    pub schema: Value,
}

/// The class of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taste {
    Good,
    /// At a limit of the schema.
    Edge,
    /// Beyond a limit of the schema, or of another type.
    Bad,
    /// Absent.
    Nothing,
}

/// The installed definition.
const DEFINITION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds/nodedeployments.windlass.dev.yaml");

/// Every field, including objects.
pub static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(DEFINITION).expect("deploy/crds is there");
    let definition: Value = serde_saphyr::from_str(&text).expect("a definition");
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = Vec::new();
    collect("", spec, &mut fields);
    fields
});

fn collect(path: &str, schema: &Value, fields: &mut Vec<Field>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(&path, schema, fields);
        fields.push(Field { path, schema: schema.clone() });
    }
}

/// A merge patch of the spec that sets one field.
pub fn patch(path: &str, value: Value) -> Value {
    let spec = path.rsplit('.').fold(value, |inner, step| {
        let mut map = Map::new();
        map.insert(step.to_owned(), inner);
        map.into()
    });
    json!({"spec": spec})
}

/// A value for a field.
pub fn value(field: &Field, taste: Taste, random: &mut Random) -> Value {
    match taste {
        Taste::Nothing => Value::Null,
        Taste::Good => values::good(&field.path, random).unwrap_or_else(|| good(&field.schema, random)),
        Taste::Edge => values::edge(&field.path, random).unwrap_or_else(|| edge(&field.schema, random)),
        Taste::Bad => bad(&field.schema, random),
    }
}

/// One of several.
pub fn one<'a, T>(of: &'a [T], random: &mut Random) -> &'a T {
    &of[random.between(0, of.len() as u64 - 1) as usize]
}

fn bound(schema: &Value, name: &str) -> Option<i64> {
    schema[name].as_i64()
}

fn good(schema: &Value, random: &mut Random) -> Value {
    if let Some(words) = schema["enum"].as_array() {
        return one(words, random).clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => (random.between(0, 1) == 1).into(),
        Some("integer") => {
            let low = bound(schema, "minimum").unwrap_or(0);
            let high = bound(schema, "maximum").unwrap_or(i64::MAX).min(low.saturating_add(5));
            (low + random.between(0, (high - low).unsigned_abs()) as i64).into()
        }
        Some("array") => json!([]),
        Some("object") => json!({}),
        Some("string") => "one".into(),
        _ => 1.into(),
    }
}

fn edge(schema: &Value, random: &mut Random) -> Value {
    match schema["type"].as_str() {
        Some("integer") => {
            let low = bound(schema, "minimum").unwrap_or(i64::from(i32::MIN));
            let high = bound(schema, "maximum").unwrap_or(i64::from(i32::MAX));
            one(&[low, low + 1, high - 1, high], random).to_owned().into()
        }
        Some("string") if schema["enum"].is_null() => {
            let longest = bound(schema, "maxLength").unwrap_or(300).unsigned_abs() as usize;
            one(&[String::new(), "a".repeat(longest), "ä".to_owned(), " ".to_owned(), "-".to_owned()], random)
                .clone()
                .into()
        }
        Some("array") => {
            let item = good(&schema["items"], random);
            let most = bound(schema, "maxItems").unwrap_or(8).unsigned_abs() as usize;
            one(&[Vec::new(), vec![item.clone(); 2], vec![item; most]], random).clone().into()
        }
        _ => good(schema, random),
    }
}

fn bad(schema: &Value, random: &mut Random) -> Value {
    let wrong: Vec<Value> = match schema["type"].as_str() {
        Some("boolean") => vec!["yes".into(), 1.into()],
        Some("integer") => {
            let mut wrong: Vec<Value> = vec!["one".into(), 1.5.into(), i64::MAX.into()];
            wrong.extend(bound(schema, "minimum").map(|low| json!(low - 1)));
            wrong.extend(bound(schema, "maximum").map(|high| json!(high + 1)));
            wrong
        }
        Some("array") => {
            let most = bound(schema, "maxItems").unwrap_or(8).unsigned_abs() as usize;
            vec!["one".into(), json!([7]), vec![json!({}); most + 1].into()]
        }
        Some("object") => vec!["one".into(), json!([])],
        Some("string") => {
            let mut wrong: Vec<Value> = vec![7.into(), json!(["one"]), json!({})];
            wrong.extend(
                bound(schema, "maxLength").map(|most| "a".repeat(most.unsigned_abs() as usize + 1).into()),
            );
            if schema["enum"].is_array() {
                wrong.push("Sideways".into());
                wrong.push("".into());
            }
            wrong
        }
        // An int-or-string.
        _ => vec![json!([]), (-1).into(), 0.into(), "101%".into(), "0%".into(), "".into(), true.into()],
    };
    one(&wrong, random).clone()
}

#[test]
fn spec_fields_are_found_in_the_definition() {
    let paths: Vec<&str> = FIELDS.iter().map(|field| field.path.as_str()).collect();
    for path in [
        "replicas",
        "template.metadata.labels",
        "template.spec.podTemplate.spec.containers",
        "template.spec.sidecar.volumeMounts",
        "updateStrategy.inPlace.maxUnavailable",
        "updateStrategy.hardFork.haltHeight",
        "service.ports",
    ] {
        assert!(paths.contains(&path), "{path} is not among {paths:?}");
    }
}
