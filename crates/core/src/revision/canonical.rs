//! The canonical form of a pod template, and of all inputs of a rollout hash: equal for content that means the same to
//! Kubernetes, different for anything else. Each rule is documented below, in the code that implements it. Changing a
//! rule requires a new version of the hash.
//!
//! The meaning of a key depends on its place (`limits` in `resources` holds quantities; as a key of a node selector it
//! is any word that a user chose), so the traversal keeps track of the place. It fills in no defaults and knows only
//! the places that have rules: fields that Kubernetes adds later pass through.

use serde_json::{Map, Number, Value};

use super::{hex::hex, quantity};

/// The kind of the whole value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Root {
    /// A PodTemplateSpec.
    PodTemplate,
    /// The named inputs of a rollout hash.
    RolloutInputs,
}

/// The current place of the traversal. The elements of a list have the place of the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    RolloutInputs,
    Sidecar,
    PodTemplate,
    Metadata,
    PodSpec,
    Container,
    Volume,
    EmptyDir,
    Projected,
    ProjectedSource,
    Csi,
    FlexVolume,
    Ephemeral,
    ClaimTemplate,
    ClaimSpec,
    Resources,
    ResourceFieldRef,
    LabelSelector,
    /// A map whose keys users choose.
    Chosen,
    /// Such a map, with quantities as values.
    Quantities,
    Quantity,
    /// A place without a rule.
    Plain,
}

/// The canonical form: values that mean the same as absence are left out, and equal quantities and numbers have one
/// text. Equal forms are equal [`Value`]s.
#[must_use]
pub fn canonical(value: &Value, root: Root) -> Value {
    let place = match root {
        Root::PodTemplate => Place::PodTemplate,
        Root::RolloutInputs => Place::RolloutInputs,
    };
    form(value, place)
}

/// A canonical form's bytes: JSON without spaces, keys in the order of their UTF-8 bytes.
#[must_use]
pub fn to_bytes(canonical: &Value) -> Vec<u8> {
    let mut text = String::new();
    write(canonical, &mut text);
    text.into_bytes()
}

fn form(value: &Value, place: Place) -> Value {
    match value {
        Value::Object(fields) => Value::Object(object(fields, place)),
        // An element is never left out: `args: [""]` is one empty argument.
        Value::Array(elements) => Value::Array(elements.iter().map(|e| form(e, place)).collect()),
        Value::Number(number) if place == Place::Quantity => quantity_or(&number_text(number), value),
        Value::String(text) if place == Place::Quantity => quantity_or(text, value),
        Value::Number(number) => Value::Number(number_form(number)),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn object(fields: &Map<String, Value>, place: Place) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, value) in fields {
        let value = form(value, place.below(key));
        let absent = match &value {
            Value::Null => true,
            Value::Array(elements) => elements.is_empty(),
            Value::Object(fields) => fields.is_empty() && !place.empty_object_is_significant(key),
            Value::String(text) => text.is_empty() && !place.empty_text_is_significant(key),
            Value::Bool(_) | Value::Number(_) => false,
        };
        if !absent {
            kept.insert(key.clone(), value);
        }
    }
    kept
}

fn quantity_or(text: &str, otherwise: &Value) -> Value {
    quantity::normalised(text).map_or_else(|| otherwise.clone(), Value::String)
}

impl Place {
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Quantities, _) | (Self::EmptyDir, "sizeLimit") | (Self::ResourceFieldRef, "divisor") => {
                Self::Quantity
            }

            (Self::RolloutInputs, "podTemplate") => Self::PodTemplate,
            (Self::RolloutInputs, "volumeClaimTemplates") | (Self::Ephemeral, "volumeClaimTemplate") => {
                Self::ClaimTemplate
            }
            (Self::RolloutInputs, "sidecar") => Self::Sidecar,

            (Self::PodTemplate | Self::ClaimTemplate, "metadata") => Self::Metadata,
            (Self::PodTemplate, "spec") => Self::PodSpec,
            (Self::ClaimTemplate, "spec") => Self::ClaimSpec,

            (Self::PodSpec, "containers" | "initContainers" | "ephemeralContainers") => Self::Container,
            (Self::PodSpec, "volumes") => Self::Volume,
            (Self::PodSpec, "overhead") | (Self::Resources, "limits" | "requests") => Self::Quantities,
            (Self::PodSpec | Self::Container | Self::ClaimSpec | Self::Sidecar, "resources") => {
                Self::Resources
            }

            (Self::Metadata, "labels" | "annotations")
            | (Self::PodSpec, "nodeSelector")
            | (Self::LabelSelector, "matchLabels")
            | (Self::Csi, "volumeAttributes")
            | (Self::FlexVolume, "options") => Self::Chosen,

            (Self::Volume, "emptyDir") => Self::EmptyDir,
            (Self::Volume, "projected") => Self::Projected,
            (Self::Volume, "csi") => Self::Csi,
            (Self::Volume, "flexVolume") => Self::FlexVolume,
            (Self::Volume, "ephemeral") => Self::Ephemeral,
            (Self::Projected, "sources") => Self::ProjectedSource,

            (Self::ClaimSpec, "selector") | (_, "labelSelector" | "namespaceSelector") => Self::LabelSelector,
            (_, "resourceFieldRef") => Self::ResourceFieldRef,
            _ => Self::Plain,
        }
    }

    /// True if `{}` under this key means something else than its absence.
    fn empty_object_is_significant(self, key: &str) -> bool {
        match self {
            // `emptyDir: {}`, `downwardAPI: {}`, and any source that is added later.
            Self::Volume | Self::ProjectedSource => true,
            // An empty selector selects everything, an absent one nothing.
            _ => matches!(key, "labelSelector" | "namespaceSelector"),
        }
    }

    /// True if `""` under this key means something else than its absence.
    fn empty_text_is_significant(self, key: &str) -> bool {
        match self {
            Self::Chosen | Self::Quantities => true,
            // `""` turns dynamic provisioning off, absence asks for the default class.
            _ => key == "storageClassName",
        }
    }
}

/// Above 2^53 a float cannot represent every integer; it stays a float.
const EXACT_FLOATS: f64 = 9_007_199_254_740_992.0;

/// Numbers that are equal have one form, however they were written: `30.0` is `30`.
fn number_form(number: &Number) -> Number {
    if number.is_i64() || number.is_u64() {
        return number.clone();
    }
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() <= EXACT_FLOATS => Number::from(float as i64),
        _ => number.clone(),
    }
}

fn number_text(number: &Number) -> String {
    let number = number_form(number);
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(n), _, _) => n.to_string(),
        (None, Some(n), _) => n.to_string(),
        (None, None, Some(float)) => float.to_string(),
        (None, None, None) => number.to_string(),
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            // Sorted here and not by the map: a dependency may enable serde_json's `preserve_order`.
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                write(&fields[key], out);
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(element, out);
            }
            out.push(']');
        }
        Value::String(text) => write_text(text, out),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
    }
}

/// Writes a string with JSON's shortest escapes. They are implemented here so that no hash depends on how a dependency
/// escapes.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                out.push_str("\\u00");
                out.push_str(&hex(&[c as u8]));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
