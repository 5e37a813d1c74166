//! Windlass rolls out changes across fleets of stateful nodes on Kubernetes.
//!
//! Most people run the `windlass` binary. This library is for programs that embed the operator, with recipes and task
//! types of their own.
//!
//! # Overview
//!
//! Two controllers share the work. They communicate only through Kubernetes objects:
//!
//! - The **orchestrator** reconciles a [`NodeDeployment`](api::NodeDeployment), which is a fleet of nodes. It decides
//!   which nodes may move to which revision, and when: it writes a node's spec and grants the node a pod template hash.
//! - The **executor** reconciles a [`StatefulNode`](api::StatefulNode), which owns a StatefulSet of one pod and a
//!   Service. It moves the node to the granted hash and reports in the status what it observed.
//!
//! Both controllers act by plans. A [`Plan`](engine::Plan) is a list of idempotent [tasks](engine::Task), made from a
//! [`Recipe`](engine::Recipe) and persisted in `status.plan` before its first effect. The process may therefore die at
//! any point: the next one reads the plan and continues it.
//!
//! # Example
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
//! Programs that embed Windlass start here:
//!
//! - [`operator`]: builds and runs the controllers, with leader election ([`operator::Operator`]).
//! - [`engine`]: plans, tasks, recipes and their executor ([`engine::Task`], [`engine::Recipe`]), independent of
//!   Kubernetes.
//! - [`tasks`]: the built-in task types, and the scopes that a task of your own works with ([`tasks::NodeScope`],
//!   [`tasks::FleetScope`]). `docs/how-to/custom-tasks.md` walks through one.
//! - [`api`]: the custom resources: types, schema, validation rules and names ([`api::crds`]).
//! - [`sidecar`]: the protocol of the sidecar, with a client and a server.
//!
//! All other modules are private. [`clock`] is the only module that reads a clock.
//!
//! [`engine`] is the crate `windlass-engine`, [`clock`] is `windlass-clock`, and [`api`] is in `windlass-core`,
//! together with the code that decides, renders and hashes, without I/O and without a clock. This crate re-exports
//! them. `ARCHITECTURE.md`
//! describes how the modules depend on one another.

mod apply;
mod cache;
mod controller;
mod hooks;
#[doc(hidden)]
pub mod internal;
mod listen;
mod metrics;
mod observe;
pub mod operator;
mod outward;
mod probe;
pub mod sidecar;
pub mod tasks;
mod traces;

pub use windlass_clock as clock;
pub use windlass_core::api;
pub(crate) use windlass_core::{planner, render, revision};
pub use windlass_engine as engine;
