//! Label selectors, as text in a query and as an object in a spec, and field selectors.

use serde_json::Value;

/// The requirements of a label selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if !part.is_empty() {
                requirements.push(requirement(part)?);
            }
        }
        Ok(Self(requirements))
    }

    /// Parses a `LabelSelector` object. An empty one selects everything, an absent one nothing.
    pub(crate) fn of(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements.push(Requirement::In(key.clone(), vec![value.as_str()?.to_owned()]));
            }
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression.get("key")?.as_str()?.to_owned();
            let values: Vec<String> = expression
                .get("values")
                .and_then(Value::as_array)
                .map(|values| values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                .unwrap_or_default();
            requirements.push(match expression.get("operator")?.as_str()? {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => return None,
            });
        }
        Some(Self(requirements))
    }

    /// True if an object with this metadata matches.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.is_empty() || self.matches_labels(&object["metadata"]["labels"])
    }

    /// True if these labels match.
    pub(crate) fn matches_labels(&self, labels: &Value) -> bool {
        let get = |key: &String| labels.get(key).and_then(Value::as_str);
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => get(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => get(key).is_none_or(|v| !values.iter().any(|w| w == v)),
            Requirement::Exists(key) => get(key).is_some(),
            Requirement::Absent(key) => get(key).is_none(),
        })
    }

    /// True if it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let broken = || format!("unable to parse requirement: {part}");
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(broken)?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        let (key, operator) = head.trim().rsplit_once(' ').ok_or_else(broken)?;
        return match operator {
            "in" => Ok(Requirement::In(key.trim().to_owned(), values)),
            "notin" => Ok(Requirement::NotIn(key.trim().to_owned(), values)),
            _ => Err(broken()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    if part.contains(' ') {
        return Err(broken());
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(key.trim().to_owned())),
        None => Ok(Requirement::Exists(part.to_owned())),
    }
}

/// The requirements of a field selector: `path=value` and `path!=value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Parses `metadata.name=a,spec.nodeName!=b`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let term = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push((term.0.to_owned(), term.1, term.2.to_owned()));
        }
        Ok(Self(terms))
    }

    /// The first path that the kind does not support.
    pub(crate) fn unsupported(&self, supported: &[&str]) -> Option<&str> {
        let builtin = ["metadata.name", "metadata.namespace"];
        self.0
            .iter()
            .map(|(path, ..)| path.as_str())
            .find(|path| !builtin.contains(path) && !supported.contains(path))
    }

    /// True if the object matches.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, wanted, value)| {
            let mut at = object;
            for step in path.split('.') {
                at = &at[step];
            }
            let found = match at {
                Value::String(text) => text == value,
                Value::Null => value.is_empty(),
                Value::Bool(flag) => value == if *flag { "true" } else { "false" },
                other => other.as_i64().is_some_and(|number| value.parse() == Ok(number)),
            };
            found == *wanted
        })
    }

    /// True if it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selector_operators_match_as_documented() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        for (text, selected) in [
            ("a=1", true),
            ("a==1,b!=3", true),
            ("a in (0, 1)", true),
            ("a notin (1)", false),
            ("c notin (1)", true),
            ("a,!c", true),
            ("c", false),
            ("", true),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), selected, "{text}");
        }
        assert!(LabelSelector::parse("a b").is_err());
    }
}
