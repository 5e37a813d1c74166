//! Every test that docs/dev/temporal.md names exists.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/dev/temporal.md");

#[test]
fn tests_named_in_the_documentation_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["tests/workers", "crates/temporal/tests/simulated", "crates/temporal/src/planner/tests"];
    let text = |file: &str| -> String {
        let read = |folder: &&str| std::fs::read_to_string(root.join(folder).join(format!("{file}.rs"))).ok();
        folders.iter().filter_map(read).collect()
    };
    let quoted = PAGE.split('`').skip(1).step_by(2);
    let named: Vec<(&str, &str)> = quoted.filter_map(|words| words.split_once("::")).collect();
    assert!(named.len() > 40, "{named:?}");
    for (file, test) in named {
        assert!(text(file).contains(&format!("fn {test}(")), "docs/dev/temporal.md names {file}::{test}");
    }
}
