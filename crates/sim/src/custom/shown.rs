//! The part of a value that rules read, and its CEL form.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_cel::cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;

/// The part of a value that rules read.
#[derive(Debug)]
pub(super) enum Shown {
    Whole,
    /// Only these fields, each in part.
    Fields(BTreeMap<String, Shown>),
}

impl Default for Shown {
    fn default() -> Self {
        Self::Fields(BTreeMap::new())
    }
}

impl Shown {
    /// The part that expressions read through a variable.
    pub(super) fn of<'a>(variable: &str, expressions: impl Iterator<Item = &'a str>) -> Self {
        let mut shown = Self::default();
        for text in expressions {
            for (at, _) in text.match_indices(variable) {
                let rest = &text[at + variable.len()..];
                if text[..at].ends_with(is_word) || rest.starts_with(is_word) {
                    continue;
                }
                if let Some(path) = fields_after(rest) {
                    shown.add(&path);
                }
            }
        }
        shown
    }

    fn add(&mut self, path: &[&str]) {
        match (path, &mut *self) {
            (_, Self::Whole) => {}
            ([], _) => *self = Self::Whole,
            ([field, below @ ..], Self::Fields(fields)) => {
                fields.entry((*field).to_owned()).or_default().add(below);
            }
        }
    }

    /// The value reduced to that part.
    pub(super) fn cut(&self, value: &Value) -> Value {
        match (self, value) {
            (Self::Fields(fields), Value::Object(map)) => {
                let shown = fields.iter().filter_map(|(name, below)| Some((below, find(map, name)?)));
                shown.map(|(below, (name, value))| (name.clone(), below.cut(value))).collect()
            }
            _ => value.clone(),
        }
    }

    /// True if two values are equal in that part.
    pub(super) fn is_same(&self, left: &Value, right: &Value) -> bool {
        match (self, left, right) {
            (Self::Fields(fields), Value::Object(left), Value::Object(right)) => {
                fields.iter().all(|(name, below)| match (find(left, name), find(right, name)) {
                    (None, None) => true,
                    (Some((_, left)), Some((_, right))) => below.is_same(left, right),
                    _ => false,
                })
            }
            _ => left == right,
        }
    }

    pub(super) fn to_cel(&self, value: &Value) -> cel::Value {
        match (self, value) {
            (Self::Fields(fields), Value::Object(map)) => {
                let shown = fields.iter().filter_map(|(name, below)| Some((name, below, find(map, name)?.1)));
                cel_map(shown.map(|(name, below, value)| (name.clone(), below.to_cel(value))))
            }
            _ => to_cel(value),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The field path that an expression reads from a variable, empty if it reads all of it. `None` if it only tests for
/// a value.
fn fields_after(mut rest: &str) -> Option<Vec<&str>> {
    let mut path = Vec::new();
    while let Some(after) = rest.strip_prefix('.') {
        let field = after.split(|c| !is_word(c)).next().unwrap_or_default();
        rest = &after[field.len()..];
        if rest.starts_with('(') {
            // A method reads all that its receiver contains.
            return (!path.is_empty() || field != "hasValue").then_some(path);
        }
        if field.is_empty() {
            break;
        }
        path.push(field);
    }
    Some(path)
}

/// The field with this escaped name.
fn find<'a>(map: &'a serde_json::Map<String, Value>, name: &str) -> Option<(&'a String, &'a Value)> {
    if name.contains("__") {
        return map.iter().find(|(field, _)| escaped(field) == name);
    }
    map.get_key_value(name)
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(n) => cel::Value::Int(n),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(map) => cel_map(map.iter().map(|(name, value)| (escaped(name), to_cel(value)))),
    }
}

fn cel_map(fields: impl Iterator<Item = (String, cel::Value)>) -> cel::Value {
    let map: HashMap<Key, cel::Value> =
        fields.map(|(name, value)| (Key::String(Arc::new(name)), value)).collect();
    cel::Value::Map(Map { map: Arc::new(map) })
}

const KEYWORDS: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// A field's name as escaped in rules.
fn escaped(name: &str) -> String {
    if KEYWORDS.contains(&name) || name == "while" {
        return format!("__{name}__");
    }
    if !name.contains(['-', '.', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('-', "__dash__")
        .replace('.', "__dot__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_receives_only_the_fields_that_it_names() {
        fn written(shown: &Shown) -> String {
            let Shown::Fields(fields) = shown else { return "*".to_owned() };
            let field = |(name, below): (&String, &Shown)| match written(below).as_str() {
                "*" => name.clone(),
                below => format!("{name}({below})"),
            };
            fields.iter().map(field).collect::<Vec<_>>().join(" ")
        }
        let fields = |variable: &str, text: &str| written(&Shown::of(variable, std::iter::once(text)));
        let name = "oldSelf.hasValue() || size(self.metadata.name) <= 39";
        assert_eq!(fields("self", name), "metadata(name)");
        assert_eq!(fields("oldSelf", name), "");
        assert_eq!(fields("self", "!has(self.a) || self.b == self.c.d"), "a b c(d)");
        assert_eq!(fields("self", "has(self.a.b) && has(self.a) && self.a.c > 0"), "a");
        assert_eq!(
            fields("self", "self.a.b.matches('x') && self.c[0].d == 1 && self.e.?f.hasValue()"),
            "a(b) c e"
        );
        assert_eq!(fields("oldSelf", "has(oldSelf.value().a)"), "*");
        for whole in [
            "self == ''",
            "self.all(p, p > 0)",
            "type(self) == int",
            "self[0] == 1",
            "size(self) > 0",
            "self.?a",
        ] {
            assert_eq!(fields("self", whole), "*", "{whole}");
        }
    }
}
