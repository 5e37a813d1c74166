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
//!   [`tasks::FleetScope`]). `docs/custom-tasks.md` walks through one.
//! - [`api`]: the custom resources: types, schema, validation rules and names ([`api::crds`]).
//! - [`sidecar`]: the protocol of the sidecar, with a client and a server.
//!
//! Pure functions, without I/O and without a clock:
//!
//! - [`planner`]: decides what should happen next, from facts alone.
//! - [`render`]: the StatefulSet and the Service of a node, rendered from its spec.
//! - [`revision`]: the hashes of templates and specs ([`revision::rollout_hash`], [`revision::pod_template_hash`]).
//! - [`report`]: reports of fleets for the terminal, the dashboard and other programs.
//!
//! The parts of the operator:
//!
//! - [`controller`]: the reconcile loops.
//! - [`cluster`]: the port to the API server: watch caches for reads, guarded requests for writes.
//! - [`observe`]: the facts that decisions are made from, read from the caches.
//! - [`apply`]: the writes to the child objects of fleets and nodes.
//! - [`asking`]: requests to sidecars and to the peers of hooks, in the background.
//! - [`hooks`]: placeholders, expressions and allowed destinations of hooks, and their validation.
//! - [`listen`]: listeners of the servers.
//! - [`metrics`]: the Prometheus metrics of the operator.
//! - [`traces`]: rollouts as spans.
//! - [`clock`]: the only module that reads a clock.
//!
//! The command line:
//!
//! - `cli`: the command line of the binary (feature `cli`).
//! - `dashboard`: the web page (feature `cli`).
//! - [`foresight`]: forecasts the effect of a change.
//! - [`reader`]: reads and watches objects with the user's own rights.
//!
//! [`engine`] is the crate `windlass-engine`, [`clock`] is `windlass-clock`, and [`api`], [`planner`], [`render`] and
//! [`revision`] are in `windlass-core`. This crate re-exports them. `ARCHITECTURE.md` describes how the modules depend
//! on one another.

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
pub mod listen;
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
