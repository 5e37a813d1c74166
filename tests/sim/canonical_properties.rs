//! Properties of the canonical form: noise does not change a template's hash, and any change does.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use windlass_core::revision::canonical::{Root, canonical, to_bytes};
use windlass_core::revision::{diff, pod_template_hash};
use windlass_harness::golden::{self, Dice};

/// Objects in which an empty string or object has a meaning.
const SPEAKING: [&str; 11] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "volumeAttributes",
    "options",
    "limits",
    "requests",
    "overhead",
    "volumes",
    "sources",
];

/// The same content with fields added that count as absent.
fn with_noise(value: &Value, under: &str, dice: &mut Dice) -> Value {
    match value {
        Value::Object(fields) => {
            let mut content: Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), with_noise(value, key, dice))).collect();
            let mut noise = vec![json!(null), json!([])];
            if !SPEAKING.contains(&under) {
                noise.extend([json!({}), json!(""), json!({"a": null, "b": {"c": []}})]);
            }
            for index in 0..dice.below(3) {
                let chosen = noise[dice.below(noise.len() as u64) as usize].clone();
                content.insert(format!("noise{index}"), chosen);
            }
            Value::Object(content)
        }
        Value::Array(elements) => elements.iter().map(|element| with_noise(element, under, dice)).collect(),
        other => other.clone(),
    }
}

/// JSON text with the keys of each object in random order.
fn shuffled(value: &Value, dice: &mut Dice) -> String {
    match value {
        Value::Object(fields) => {
            let mut members: Vec<String> =
                fields.iter().map(|(k, v)| format!("{}:{}", json!(k), shuffled(v, dice))).collect();
            for index in (1..members.len()).rev() {
                members.swap(index, dice.below(index as u64 + 1) as usize);
            }
            format!("{{{}}}", members.join(","))
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|element| shuffled(element, dice)).collect();
            format!("[{}]", elements.join(","))
        }
        other => other.to_string(),
    }
}

/// The JSON pointers of all leaves.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                leaves(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (index, value) in elements.iter().enumerate() {
                leaves(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

/// A canonical template, and the pointer of one of its leaves.
fn template_and_leaf(seed: u64, choice: u64) -> (Value, String) {
    let template = canonical(&golden::pod_template(seed), Root::PodTemplate);
    let mut found = Vec::new();
    leaves(&template, "", &mut found);
    let leaf = found[choice as usize % found.len()].clone();
    (template, leaf)
}

fn changed(leaf: &Value) -> Value {
    match leaf {
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(number) => json!(number.as_f64().unwrap() + 1.0),
        Value::Bool(truth) => json!(!truth),
        Value::Null => json!("x"),
        Value::Object(_) => json!({"x": "x"}),
        Value::Array(_) => json!(["x"]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn noise_and_key_order_do_not_change_the_hash(seed: u64, noise: u64) {
        let template = golden::pod_template(seed);
        let mut dice = Dice(noise);
        let noisy = with_noise(&template, "", &mut dice);
        let rewritten: Value = serde_json::from_str(&shuffled(&noisy, &mut dice)).unwrap();
        prop_assert_eq!(pod_template_hash(&template), pod_template_hash(&rewritten));
        prop_assert_eq!(diff(&template, &rewritten), vec![]);
    }

    #[test]
    fn canonical_form_is_idempotent(seed: u64) {
        let once = canonical(&golden::pod_template(seed), Root::PodTemplate);
        prop_assert_eq!(&canonical(&once, Root::PodTemplate), &once);
        let reread: Value = serde_json::from_slice(&to_bytes(&once)).unwrap();
        prop_assert_eq!(reread, once);
    }

    #[test]
    fn changing_any_leaf_changes_the_hash(seed: u64, choice: u64) {
        let (template, leaf) = template_and_leaf(seed, choice);
        let mut other = template.clone();
        let value = other.pointer_mut(&leaf).unwrap();
        *value = changed(value);
        prop_assert_ne!(pod_template_hash(&template), pod_template_hash(&other), "{}", leaf);
        prop_assert_ne!(diff(&template, &other), vec![], "{}", leaf);
    }

    #[test]
    fn removing_any_leaf_changes_the_hash(seed: u64, choice: u64) {
        let (template, leaf) = template_and_leaf(seed, choice);
        let (parent, key) = leaf.rsplit_once('/').unwrap();
        let mut other = template.clone();
        match other.pointer_mut(parent).unwrap() {
            Value::Object(fields) => {
                fields.remove(&key.replace("~1", "/").replace("~0", "~"));
            }
            Value::Array(elements) => {
                elements.remove(key.parse::<usize>().unwrap());
            }
            _ => unreachable!("a leaf's parent holds it"),
        }
        prop_assert_ne!(pod_template_hash(&template), pod_template_hash(&other), "{}", leaf);
        prop_assert_ne!(diff(&template, &other), vec![], "{}", leaf);
    }

    #[test]
    fn template_hashes_are_equal_exactly_when_the_diff_is_empty(a in 0..40u64, b in 0..40u64) {
        let (a, b) = (golden::pod_template(a), golden::pod_template(b));
        prop_assert_eq!(pod_template_hash(&a) == pod_template_hash(&b), diff(&a, &b).is_empty());
    }
}
