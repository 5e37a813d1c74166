//! Tests on the simulated cluster, and of the pure parts of Windlass: its rules as a model, and what it renders.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests measure time")]

mod canonical_properties;
mod catalogue;
mod conformance;
mod golden_hashes;
mod model;
mod planned;
mod rendering;
mod simulated;
mod walks;

/// The system's allocator took a fifth of the time of the catalogue and the walks, which consist of small maps and strings.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
