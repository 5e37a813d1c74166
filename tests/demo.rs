//! `windlass demo` as a user runs it: the binary, its standard output, and an unmodified kubectl.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "controlplane/mod.rs"]
mod controlplane;
#[path = "demo/kit.rs"]
mod kit;
#[path = "demo/looked_at.rs"]
mod looked_at;
#[path = "demo/told.rs"]
mod told;
