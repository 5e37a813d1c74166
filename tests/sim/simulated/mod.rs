//! Properties of the simulated cluster besides conformance: an ordinary client and kube's runtime work on it; it is
//! deterministic and fast, and injects faults.

mod at_rest;
mod claims_go;
mod clients;
mod concurrency;
mod faults;
mod foreign;
mod hooks;
mod leaving;
mod made_again;
mod one_apply;
mod operator;
mod pace;
mod platform;
mod refused;
mod reverted;
mod revisions;
mod rights;
mod sets;
mod sidecars;
mod stale_patches;
mod written_otherwise;
