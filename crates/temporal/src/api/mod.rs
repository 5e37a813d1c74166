//! The custom resource WorkerDeployment: its types, schema and rules.

pub mod connection;
pub mod connections;
pub mod crd;
pub mod evacuation;
pub mod names;
pub mod reasons;
pub mod rollout;
mod rules;
pub mod source;
pub mod status;
pub mod worker_deployment;

pub use connection::{ApiKeySecret, Connection, Tls, WorkerCredentials, WorkerTls};
pub use connections::{ClusterTemporalConnection, TemporalConnection};
pub use crd::{crds, crds_yaml};
pub use evacuation::{EvacuationPhase, EvacuationRequest, EvacuationStatus};
pub use reasons::Reason;
pub use rollout::{Gate, InputFrom, KeyRef, OnFailure, RampStep, RolloutSpec, Strategy};
pub use source::ConnectionSource;
pub use status::{PoolRecord, VersionRecord, VersionResource, VersionState, WorkerDeploymentStatus};
pub use worker_deployment::{DeletionPolicy, Pool, Sunset, WorkerDeployment, WorkerDeploymentSpec};
