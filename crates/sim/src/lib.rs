//! A Kubernetes cluster in the process: an API server for an ordinary `kube::Client`, the controllers that Windlass
//! depends on, and a clock that tests control. It is deterministic: one seed, one trace. The conformance suite under
//! `tests/` compares it with a real control plane.
//!
//! Independent of fleets, nodes and plans: the operator runs on it unmodified.

#![allow(clippy::similar_names, reason = "a shelf is not self")]

mod admission;
mod agenda;
mod audit;
mod cause;
mod cluster;
mod controllers;
mod custom;
mod faults;
mod http;
mod json_path;
mod kinds;
pub mod kubelet;
mod random;
mod refusal;
mod selector;
mod server;
mod service;
mod shared;
mod store;
mod types;
mod world;

pub use admission::policy::{Mutation, Policy, Target, proxy};
pub use agenda::Pace;
pub use audit::AuditEntry;
pub use cluster::{Cluster, ClusterClock, Image, Options, Step};
pub use faults::{After, Before, EventInfo, Failure, FaultPlan, NoFaults, RequestInfo, WatchFate};
pub use random::Random;
pub use refusal::Refusal;
pub use service::{ApiService, Disconnected, Latency, SimBody};
