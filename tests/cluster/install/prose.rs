//! The prose linter reads the pages and the list of texts.

use std::process::Command;

use crate::install::helm::{built, path};
use windlass_harness::controlplane::GoProgram;

const VALE: GoProgram = GoProgram {
    name: "vale",
    told: "Vale 3.20.0",
    module: "tests/cluster/install/go/vale",
    modfile: None,
    // Parses source code with it, which is not used here.
    cgo: true,
    package: "github.com/vale-cli/vale/v3/cmd/vale",
};
/// The pages and the list.
const READ: [&str; 8] = [
    "docs",
    "tests/cluster/install/strings.txt",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "deploy/README.md",
];

#[test]
fn pages_are_plain_english() {
    let Some(vale) = built(&VALE) else { return };
    let linted = Command::new(vale)
        .args(["--config", "tests/cluster/install/vale/vale.ini", "--output", "line"])
        .args(READ)
        .current_dir(path(""))
        .output()
        .expect("Vale runs");
    let said = String::from_utf8_lossy(&linted.stdout);
    assert!(linted.status.success(), "{said}{}", String::from_utf8_lossy(&linted.stderr));
}
