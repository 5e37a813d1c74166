//! Published crates build on their own: they include no file from outside, and their dependencies are published, too.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::install::helm::path;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|ext| ext == "rs") {
            into.push(entry);
        }
    }
}

/// True if a source is only compiled for tests.
fn is_of_tests(source: &Path) -> bool {
    source.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

#[test]
fn crates_include_no_files_from_outside() {
    let mut seen = 0;
    for name in ["cli", "clock", "core", "engine", "kube-port", "sim", "temporal", "temporal-grpc"] {
        let own = path(&format!("crates/{name}")).canonicalize().unwrap();
        let mut files = Vec::new();
        sources(&own.join("src"), &mut files);
        for file in files.iter().filter(|file| !is_of_tests(file)) {
            let code = std::fs::read_to_string(file).unwrap();
            let code = code.split("#[cfg(test)]").next().unwrap();
            for part in code.split("include_str!(\"").skip(1) {
                let named = file.parent().unwrap().join(part.split('"').next().unwrap());
                // What a link stands for is packed in its place.
                let found = named.parent().unwrap().canonicalize().unwrap().join(named.file_name().unwrap());
                assert!(found.starts_with(&own), "{} takes in {}", file.display(), found.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "so few files are compiled in: {seen}");
}

#[test]
fn published_crates_are_fit_for_a_registry() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let is_published = |package: &&Value| package["publish"].is_null();
    let published: Vec<&Value> = packages.iter().filter(is_published).collect();
    let names: Vec<&str> = published.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"windlass") && names.contains(&"windlass-cli") && names.len() == 9, "{names:?}");
    for package in published {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "homepage", "readme", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        let own = package["dependencies"].as_array().unwrap().iter();
        for needed in own.filter(|needed| needed["path"].is_string() && needed["kind"] != "dev") {
            assert!(names.contains(&needed["name"].as_str().unwrap()), "{name} rests on {}", needed["name"]);
            assert_ne!(needed["req"], "*", "{name} says no version of {}", needed["name"]);
        }
    }
}
