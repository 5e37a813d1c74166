//! Windlass rolls out change across fleets of stateful nodes on Kubernetes.
//!
//! The floors of the house, from the top down; each may import only those below it:
//! [`cli`], [`operator`], [`controller`], [`planner`] and [`tasks`], [`asking`], [`render`], [`cluster`] and
//! [`revision`], [`api`], [`engine`]. Beside them stand [`sidecar`] and [`sim`].
//! `ARCHITECTURE.md` has the map.

pub mod api;
pub mod asking;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod controller;
pub mod engine;
pub mod operator;
pub mod planner;
pub mod render;
pub mod revision;
pub mod sidecar;
pub mod sim;
pub mod tasks;
