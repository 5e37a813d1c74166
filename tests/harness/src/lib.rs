//! What the integration tests, the examples and the benchmarks of Windlass share.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::new_without_default,
    reason = "nobody but tests uses it"
)]

pub mod conformance;
pub mod controlplane;
pub mod debian;
pub mod golden;
pub mod judge;
pub mod kit;
pub mod operated;
pub mod page;
pub mod panics;
pub mod stage;
pub mod systems;
#[cfg(feature = "temporal")]
pub mod temporal;
pub mod tls;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders above this one").to_owned()
}

/// The folder of the running profile's output, such as target/debug: the running test, benchmark or example is in a
/// folder of it.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    program.ancestors().nth(2).expect("a program that cargo built").to_owned()
}

/// The program `windlass`, which cargo builds before a package's tests and benchmarks.
pub fn windlass_bin() -> PathBuf {
    built().join("windlass")
}

/// A folder for files that are kept from one run to the next: target/tmp.
fn kept(folder: &str) -> PathBuf {
    let kept = built().with_file_name("tmp").join(folder);
    std::fs::create_dir_all(&kept).expect("a folder beside the build's output");
    kept
}
