//! The differences between two templates as data: which fields change, from what, to what. Their number and size are
//! limited, since they are shown in messages and on terminals.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::canonical::{Root, canonical, to_bytes};
use super::template;

/// The maximum number of differences that are listed.
pub const MAX_DIFFERENCES: usize = 50;
/// A value's text is truncated after this many characters.
pub const MAX_VALUE_CHARS: usize = 120;

/// One field that differs. `Display` writes it as a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The field's path, for example `spec.containers[name=db].image`.
    pub path: String,
    /// The old value, as JSON truncated to [`MAX_VALUE_CHARS`]; `None` if the field is added.
    pub from: Option<String>,
    /// The new value, as JSON truncated to [`MAX_VALUE_CHARS`]; `None` if the field is removed.
    pub to: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, from, to } = self;
        match (from, to) {
            (Some(from), Some(to)) => write!(f, "{path} changes from {from} to {to}"),
            (None, Some(to)) => write!(f, "{path} is added: {to}"),
            (Some(from), None) => write!(f, "{path} is removed: {from}"),
            (None, None) => write!(f, "{path} does not change"),
        }
    }
}

/// The differences between two pod templates; empty exactly when their hashes are equal. At most [`MAX_DIFFERENCES`].
#[must_use]
pub fn diff(from: &Value, to: &Value) -> Vec<Difference> {
    let form = |template: &Value| {
        let mut template = template.clone();
        template::remove_own_keys(&mut template);
        canonical(&template, Root::PodTemplate)
    };
    diff_canonical(&form(from), &form(to))
}

/// The differences between two values, as they are written. At most [`MAX_DIFFERENCES`].
#[must_use]
pub fn between(from: &Value, to: &Value) -> Vec<Difference> {
    diff_canonical(from, to)
}

/// The first `limit` differences in one line.
#[must_use]
pub fn summary(differences: &[Difference], limit: usize) -> String {
    let shown: Vec<String> = differences.iter().take(limit).map(ToString::to_string).collect();
    let line = shown.join("; ");
    match differences.len() - shown.len() {
        0 => line,
        // The list itself may have been truncated.
        more if differences.len() == MAX_DIFFERENCES => format!("{line}; and at least {more} more"),
        more => format!("{line}; and {more} more"),
    }
}

pub(super) fn diff_canonical(from: &Value, to: &Value) -> Vec<Difference> {
    let mut found = Found(Vec::new());
    found.compare("", Some(from), Some(to));
    found.0
}

struct Found(Vec<Difference>);

impl Found {
    fn push(&mut self, path: &str, from: Option<String>, to: Option<String>) {
        if self.0.len() < MAX_DIFFERENCES {
            let path = if path.is_empty() { "the whole value" } else { path };
            self.0.push(Difference { path: path.to_owned(), from, to });
        }
    }

    fn compare(&mut self, path: &str, from: Option<&Value>, to: Option<&Value>) {
        match (from, to) {
            (from, to) if from == to => {}
            (Some(Value::Object(from)), Some(Value::Object(to))) => self.compare_fields(path, from, to),
            (Some(Value::Array(from)), Some(Value::Array(to))) => match (named(from), named(to)) {
                (Some(from), Some(to)) => self.compare_named(path, &from, &to),
                _ => self.compare_indexed(path, from, to),
            },
            (from, to) => self.push(path, from.map(text), to.map(text)),
        }
    }

    fn compare_fields(&mut self, path: &str, from: &Map<String, Value>, to: &Map<String, Value>) {
        let mut keys: Vec<&String> = from.keys().chain(to.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.compare(&child(path, key), from.get(key), to.get(key));
        }
    }

    fn compare_named(&mut self, path: &str, from: &[(&str, &Value)], to: &[(&str, &Value)]) {
        let find = |name: &str, in_list: &[(&str, &Value)]| in_list.iter().position(|(n, _)| *n == name);
        let mut before = Vec::new();
        for (name, value) in from {
            let counterpart = find(name, to).map(|index| to[index].1);
            self.compare(&format!("{path}[name={name}]"), Some(value), counterpart);
            before.extend(counterpart.map(|_| *name));
        }
        let mut after = Vec::new();
        for (name, value) in to {
            match find(name, from) {
                Some(_) => after.push(*name),
                None => self.compare(&format!("{path}[name={name}]"), None, Some(value)),
            }
        }
        // The order matters: init containers run in that order, and a variable may use an earlier one.
        if before != after {
            let path = format!("{path} (order)");
            self.push(&path, Some(cut(&before.join(", "))), Some(cut(&after.join(", "))));
        }
    }

    fn compare_indexed(&mut self, path: &str, from: &[Value], to: &[Value]) {
        for index in 0..from.len().max(to.len()) {
            self.compare(&format!("{path}[{index}]"), from.get(index), to.get(index));
        }
    }
}

/// The elements with their names, if each has a name that no other has.
fn named(elements: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let named: Vec<(&str, &Value)> =
        elements.iter().map(|e| Some((e.get("name")?.as_str()?, e))).collect::<Option<_>>()?;
    let unique: BTreeSet<&str> = named.iter().map(|(name, _)| *name).collect();
    (unique.len() == named.len()).then_some(named)
}

fn child(path: &str, key: &str) -> String {
    let is_word = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match (path.is_empty(), is_word) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key}]"),
    }
}

fn text(value: &Value) -> String {
    cut(&String::from_utf8_lossy(&to_bytes(value)))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sentences(from: &Value, to: &Value) -> Vec<String> {
        diff(from, to).iter().map(ToString::to_string).collect()
    }

    fn containers(list: &Value) -> Value {
        json!({"spec": {"containers": list}})
    }

    #[test]
    fn container_is_identified_by_its_name() {
        let from = containers(&json!([{"name": "db", "image": "db:1"}, {"name": "log", "image": "log:1"}]));
        let to = containers(&json!([{"name": "log", "image": "log:1"}, {"name": "db", "image": "db:2"}]));
        assert_eq!(
            sentences(&from, &to),
            [
                "spec.containers[name=db].image changes from \"db:1\" to \"db:2\"",
                "spec.containers (order) changes from db, log to log, db",
            ]
        );
    }

    #[test]
    fn added_and_removed_fields_are_described() {
        let from = containers(&json!([{"name": "a"}, {"name": "b", "args": ["x"]}]));
        let to = containers(&json!([{"name": "c"}, {"name": "b", "tty": true}]));
        assert_eq!(
            sentences(&from, &to),
            [
                "spec.containers[name=a] is removed: {\"name\":\"a\"}",
                "spec.containers[name=b].args is removed: [\"x\"]",
                "spec.containers[name=b].tty is added: true",
                "spec.containers[name=c] is added: {\"name\":\"c\"}",
            ]
        );
    }

    #[test]
    fn elements_without_unique_names_are_identified_by_index() {
        let mounts = |path: &str| {
            containers(&json!([{"name": "a", "volumeMounts": [
                {"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": path}]}]))
        };
        assert_eq!(
            sentences(&mounts("/b"), &mounts("/c")),
            ["spec.containers[name=a].volumeMounts[1].mountPath changes from \"/b\" to \"/c\""]
        );
        let args = |args: Value| containers(&json!([{"name": "a", "args": args}]));
        assert_eq!(
            sentences(&args(json!(["x", "y"])), &args(json!(["x"]))),
            ["spec.containers[name=a].args[1] is removed: \"y\""]
        );
    }

    #[test]
    fn non_identifier_key_is_put_in_brackets() {
        let checksum = |sum: &str| json!({"metadata": {"annotations": {"checksum/config": sum}}});
        assert_eq!(
            sentences(&checksum("a"), &checksum("b")),
            ["metadata.annotations[checksum/config] changes from \"a\" to \"b\""]
        );
    }

    #[test]
    fn fields_outside_the_hash_are_no_difference() {
        let from = json!({"metadata": {"labels": {"windlass.dev/node": "a"}}, "spec": {"nodeName": ""}});
        assert_eq!(diff(&from, &json!({})), vec![]);
    }

    #[test]
    fn string_and_number_are_distinguished() {
        assert_eq!(
            sentences(&json!({"port": "80"}), &json!({"port": 80})),
            ["port changes from \"80\" to 80"]
        );
    }

    #[test]
    fn long_value_is_cut_between_characters() {
        let long = "é".repeat(200);
        let found = diff(&json!({}), &json!({"x": long}));
        let text = found[0].to.as_deref().unwrap();
        assert_eq!(text.chars().count(), MAX_VALUE_CHARS + 1);
        assert!(text.starts_with("\"é") && text.ends_with("é…"), "{text}");
    }

    #[test]
    fn number_of_listed_differences_is_bounded() {
        let many: Map<String, Value> = (0..200).map(|n| (format!("f{n:03}"), json!(n))).collect();
        let found = diff(&json!({}), &Value::Object(many));
        assert_eq!(found.len(), MAX_DIFFERENCES);
        assert_eq!(summary(&found, 1), "f000 is added: 0; and at least 49 more");
        assert_eq!(summary(&found[..3], 2), "f000 is added: 0; f001 is added: 1; and 1 more");
        assert_eq!(summary(&found[..2], 2), "f000 is added: 0; f001 is added: 1");
        assert_eq!(summary(&[], 2), "");
    }
}
