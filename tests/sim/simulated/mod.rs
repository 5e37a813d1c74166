//! The operator on the simulated cluster, a folder or file for each feature (`hooks/`, `sets/` and so on). `clients`,
//! `faults`, `pace` and `determinism` are about the simulated cluster itself.

mod at_rest;
mod claims_go;
mod clients;
mod concurrency;
mod config;
mod creation;
mod drains;
mod faults;
mod foreign;
mod growth;
mod hooks;
mod leaving;
mod made_again;
mod one_apply;
mod operator;
mod pace;
mod platform;
mod references;
mod refused;
mod reverted;
mod revisions;
mod rights;
mod rollouts;
mod sets;
mod sidecars;
mod stale_patches;
mod windows;
mod written_otherwise;
mod zones;
