//! The paths of printer columns: `.a.b`, `.a['b']`, `.a[0]` and `.a[?(@.type=="Ready")].b`.

use serde_json::Value;

/// A step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Index(usize),
    /// The first item whose field equals this text.
    Item(String, String),
}

/// The value at the end of a path.
pub(crate) fn find<'a>(object: &'a Value, path: &[Step]) -> Option<&'a Value> {
    let found = path.iter().try_fold(object, |at, step| match step {
        Step::Field(name) => at.get(name),
        Step::Index(index) => at.get(index),
        Step::Item(field, text) => at.as_array()?.iter().find(|item| item[field] == text.as_str()),
    });
    found.filter(|value| !value.is_null())
}

/// Parses a path; `None` if it uses unsupported syntax.
pub(crate) fn read(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[?(@.") {
            let (test, left) = after.split_once(")]")?;
            let (field, wanted) = test.split_once("==")?;
            steps.push(Step::Item(field.trim().to_owned(), unquoted(wanted.trim())?.to_owned()));
            rest = left;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inner, left) = after.split_once(']')?;
            steps.push(match inner.parse() {
                Ok(index) => Step::Index(index),
                Err(_) => Step::Field(unquoted(inner)?.to_owned()),
            });
            rest = left;
        } else {
            let after = rest.strip_prefix('.')?;
            let mut name = String::new();
            let mut letters = after.char_indices();
            let mut end = after.len();
            while let Some((index, letter)) = letters.next() {
                match letter {
                    '.' | '[' => {
                        end = index;
                        break;
                    }
                    // An escaped dot within a name, as in annotations.
                    '\\' => name.extend(letters.next().map(|(_, escaped)| escaped)),
                    letter => name.push(letter),
                }
            }
            steps.push(Step::Field(name));
            rest = &after[end..];
        }
    }
    Some(steps)
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_resolve_fields_items_and_dotted_names() {
        let object = json!({"a": {"b": 1, "x.y/z": 2}, "list": [{"type": "Ready", "status": "True"}, {"type": "Other"}]});
        for (path, value) in [
            (".a.b", Some(json!(1))),
            (".a['x.y/z']", Some(json!(2))),
            (".a.x\\.y/z", Some(json!(2))),
            (".list[1].type", Some(json!("Other"))),
            (".list[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".list[?(@.type=='Gone')].status", None),
            (".a.c", None),
        ] {
            assert_eq!(find(&object, &read(path).unwrap()).cloned(), value, "{path}");
        }
        assert_eq!(read(".a[*].b"), None, "what is not known is not guessed");
    }
}
