//! The observations on the real control plane, and the comparison with them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

pub type Results = BTreeMap<&'static str, Result<Value, String>>;

fn path() -> PathBuf {
    crate::root().join("tests/harness/src/conformance/observed.json")
}

/// The recorded observations, by case.
pub fn read() -> BTreeMap<String, Value> {
    std::fs::read_to_string(path()).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
}

/// Records observations; cases that did not run keep theirs, and cases that no longer exist are removed.
pub fn write(results: &Results) {
    let mut recorded = read();
    recorded.retain(|name, _| super::cases::all().iter().any(|case| case.name == name));
    for (name, result) in results {
        if let Ok(observed) = result {
            recorded.insert((*name).to_owned(), observed.clone());
        }
    }
    std::fs::write(path(), serde_json::to_string_pretty(&recorded).unwrap() + "\n").unwrap();
}

/// Fails if an observation differs from the recorded one.
pub fn compare(recorded: &BTreeMap<String, Value>, results: &Results) {
    let mut differences = Vec::new();
    for (name, result) in results {
        match result {
            Err(why) => differences.push(format!("{name}\n    failed: {why}")),
            Ok(observed) => {
                let Some(wanted) = recorded.get(*name) else {
                    differences.push(format!("{name}\n    was never recorded: {observed}"));
                    continue;
                };
                let lines = differing(wanted, observed);
                if !lines.is_empty() {
                    differences.push(format!("{name}\n{}", lines.join("\n")));
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} cases disagree:\n{}",
        differences.len(),
        results.len(),
        differences.join("\n")
    );
}

fn differing(wanted: &Value, observed: &Value) -> Vec<String> {
    let (Some(wanted), Some(observed)) = (wanted.as_array(), observed.as_array()) else {
        return vec![format!("    recorded {wanted}\n    observed {observed}")];
    };
    let count = wanted.len().max(observed.len());
    (0..count)
        .filter(|index| wanted.get(*index) != observed.get(*index))
        .map(|index| {
            let show = |list: &[Value]| list.get(index).map_or("nothing".into(), ToString::to_string);
            format!("    recorded {}\n    observed {}", show(wanted), show(observed))
        })
        .collect()
}
