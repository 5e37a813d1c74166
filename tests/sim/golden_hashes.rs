//! Every hash in `tests/golden/` is unchanged. A hash that changes restarts fleets at an upgrade of Windlass; if the
//! algorithm has to change, it gets a new version and the old one stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::api::StatefulNodeSpec;
use windlass_core::render::{RenderOptions, pod_template};
use windlass_core::revision::{pod_template_hash, rollout_hash};

/// If set to 1, the test adds missing hashes. It never changes existing ones.
const ADD: &str = "WINDLASS_GOLDEN_ADD";

/// The number of templates in `generated.jsonl`.
const GENERATED: u64 = 300;

/// The field of an entry that holds its hashes.
const HASHES: &str = "hashes";

fn golden(path: &str) -> PathBuf {
    windlass_harness::root().join("tests/golden").join(path)
}

fn may_add() -> bool {
    std::env::var(ADD).is_ok_and(|value| value == "1")
}

/// Compares an entry's recorded hashes with the computed ones. True if hashes were added.
fn check(entry: &mut Value, now: &Value) -> bool {
    let name = entry["name"].clone();
    if let Some(recorded) = entry.get(HASHES) {
        assert_eq!(recorded, now, "{name}: a hash has moved; that would restart what runs");
        return false;
    }
    assert!(may_add(), "{name} has no recorded hash; {ADD}=1 records it");
    entry[HASHES] = now.clone();
    true
}

/// Checks every line of a file; `hashes` computes an entry's hashes. Returns the entries.
fn check_lines(file: &str, hashes: impl Fn(&Value) -> Value) -> Vec<Value> {
    let text = fs::read_to_string(golden(file)).unwrap_or_default();
    check_text(file, &text, hashes)
}

fn check_text(file: &str, text: &str, hashes: impl Fn(&Value) -> Value) -> Vec<Value> {
    let mut names = BTreeSet::new();
    let mut written = String::new();
    let mut entries = Vec::new();
    let mut added = false;
    for line in text.lines() {
        let mut entry: Value = serde_json::from_str(line).expect(line);
        assert!(names.insert(entry["name"].to_string()), "{} is there twice", entry["name"]);
        let now = hashes(&entry);
        if check(&mut entry, &now) {
            added = true;
            written.push_str(&entry.to_string());
        } else {
            written.push_str(line);
        }
        written.push('\n');
        entries.push(entry);
    }
    if added {
        fs::write(golden(file), written).unwrap();
    }
    entries
}

fn spec_of(entry: &Value) -> StatefulNodeSpec {
    StatefulNodeSpec::deserialize(entry).unwrap()
}

#[test]
fn realistic_nodes_keep_their_recorded_hashes() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(golden("nodes")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 39, "entries are not removed: {} are left", files.len());
    for file in files {
        let mut entry: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let spec = spec_of(&entry["spec"]);
        let options = RenderOptions {
            pod_annotations: Option::<BTreeMap<_, _>>::deserialize(&entry["podAnnotations"])
                .unwrap()
                .unwrap_or_default(),
        };
        let rendered = pod_template(&spec, entry["restartedAt"].as_str(), &options).unwrap();
        let now = json!({
            "asWritten": pod_template_hash(&spec.pod_template),
            "rendered": pod_template_hash(&rendered),
            "rollout": rollout_hash(&spec, entry["buildID"].as_str().unwrap_or_default()),
        });
        if check(&mut entry, &now) {
            fs::write(&file, format!("{entry:#}\n")).unwrap();
        }
    }
}

#[test]
fn template_pairs_match_as_specified_and_keep_their_hashes() {
    let entries = check_lines("pairs.jsonl", |entry| {
        json!([pod_template_hash(&entry["a"]), pod_template_hash(&entry["b"])])
    });
    assert!(entries.len() >= 148, "entries are not removed: {} are left", entries.len());
    check_sameness(&entries);
}

#[test]
fn spec_pairs_match_as_specified_and_keep_their_hashes() {
    let entries = check_lines("targets.jsonl", |entry| {
        let hash = |side: &str, index: usize| {
            rollout_hash(&spec_of(&entry[side]), entry["buildIDs"][index].as_str().unwrap_or_default())
        };
        json!([hash("a", 0), hash("b", 1)])
    });
    assert!(entries.len() >= 56, "entries are not removed: {} are left", entries.len());
    check_sameness(&entries);

    // Equal targets render equal pods: a rendering may be cached by its rollout hash.
    let rendered = |side: &Value| pod_template(&spec_of(side), None, &RenderOptions::default());
    for entry in entries.iter().filter(|entry| entry["same"] == true) {
        let (a, b) = (rendered(&entry["a"]).unwrap(), rendered(&entry["b"]).unwrap());
        assert_eq!(pod_template_hash(&a), pod_template_hash(&b), "{}", entry["name"]);
    }
}

fn check_sameness(entries: &[Value]) {
    for entry in entries {
        let same = entry[HASHES][0] == entry[HASHES][1];
        assert_eq!(Some(same), entry["same"].as_bool(), "{}", entry["name"]);
    }
}

#[test]
fn generated_templates_keep_their_hashes() {
    let mut text = fs::read_to_string(golden("generated.jsonl")).unwrap_or_default();
    if may_add() {
        for seed in text.lines().count() as u64..GENERATED {
            let entry = json!({"name": format!("generated-{seed:03}"), "template": windlass_harness::golden::pod_template(seed)});
            text.extend([entry.to_string().as_str(), "\n"]);
        }
    }
    let entries = check_text("generated.jsonl", &text, |entry| json!(pod_template_hash(&entry["template"])));
    assert!(entries.len() as u64 >= GENERATED, "entries are not removed: {} are left", entries.len());
    let distinct: BTreeSet<String> = entries.iter().map(|entry| entry[HASHES].to_string()).collect();
    assert_eq!(distinct.len(), entries.len(), "two templates that differ have one hash");
}
