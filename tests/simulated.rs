//! Properties of the simulated cluster besides conformance: an ordinary client and kube's runtime work on it; it is
//! deterministic and fast, and injects faults.
#![allow(clippy::disallowed_methods, reason = "tests measure time")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "simulated/at_rest.rs"]
mod at_rest;
#[path = "simulated/claims_go.rs"]
mod claims_go;
#[path = "simulated/clients.rs"]
mod clients;
#[path = "simulated/concurrency.rs"]
mod concurrency;
#[path = "simulated/determinism.rs"]
mod determinism;
#[path = "simulated/faults.rs"]
mod faults;
#[path = "simulated/foreign.rs"]
mod foreign;
#[path = "simulated/hooks/mod.rs"]
mod hooks;
#[path = "simulated/leaving.rs"]
mod leaving;
#[path = "simulated/made_again.rs"]
mod made_again;
#[path = "simulated/nonsense.rs"]
mod nonsense;
#[path = "simulated/one_apply.rs"]
mod one_apply;
#[path = "simulated/operator.rs"]
mod operator;
#[path = "simulated/overruled.rs"]
mod overruled;
#[path = "simulated/pace.rs"]
mod pace;
#[path = "simulated/platform.rs"]
mod platform;
#[path = "simulated/refused.rs"]
mod refused;
#[path = "simulated/revisions.rs"]
mod revisions;
#[path = "simulated/rights.rs"]
mod rights;
#[path = "simulated/sets/mod.rs"]
mod sets;
#[path = "simulated/sidecars.rs"]
mod sidecars;
#[path = "simulated/stage.rs"]
mod stage;
#[path = "simulated/stale_patches.rs"]
mod stale_patches;
#[path = "simulated/written_otherwise.rs"]
mod written_otherwise;
