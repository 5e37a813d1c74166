//! Windlass rolls out change across fleets of stateful nodes on Kubernetes.
//!
//! Most people run the `windlass` binary. This library is for programs that embed it: an operator with recipes and task
//! types of its own.
//!
//! ```no_run
//! use windlass::operator::Operator;
//! use windlass::engine::Recipe;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = kube::Client::try_default().await?;
//! Operator::new(client)
//!     .recipe(Recipe::parse(include_str!("../plans/node-update.yaml"))?)
//!     .namespaces(["brokers".to_owned()])
//!     .run(std::future::pending())
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Module guide
//!
//! | you want to | look at |
//! |---|---|
//! | run the controllers in a program of your own | [`operator::Operator`] |
//! | write a task type | [`engine::Task`], [`tasks::NodeScope`], [`tasks::FleetScope`]; `docs/custom-tasks.md` walks through one |
//! | write a recipe | [`engine::Recipe`] |
//! | read or write the custom resources | [`api::NodeDeployment`], [`api::StatefulNode`], [`api::crds`] |
//! | know which hash a template has | [`revision::rollout_hash`], [`revision::pod_template_hash`] |
//! | know what a node's StatefulSet looks like | [`render`] |
//! | know what would happen next, without a cluster | [`planner`] |
//! | speak to a sidecar, or be one | [`sidecar`] |
//!
//! [`engine`] knows nothing of Kubernetes; [`api`], [`revision`], [`render`] and [`planner`] do no I/O and read no clock. They
//! are crates of their own (`windlass-engine`, `windlass-core`), and are offered here under one name.
//! `ARCHITECTURE.md` has the map.

pub mod apply;
pub mod asking;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cluster;
pub mod controller;
#[cfg(feature = "cli")]
pub mod dashboard;
pub mod foresight;
pub mod hooks;
pub mod metrics;
pub mod observe;
pub mod operator;
pub mod reader;
pub mod report;
pub mod sidecar;
pub mod tasks;
pub mod traces;

pub use windlass_clock as clock;
pub use windlass_core::{api, planner, render, revision};
pub use windlass_engine as engine;
