//! The custom resources: their types, schema and validation rules. The only logic here converts a field into the form
//! that other code needs; decisions are made by the planner.

pub mod at_hook;
pub mod built_for;
pub mod condition_types;
pub mod conditions;
pub mod crd;
mod ending;
mod fields;
pub mod generated_suffixes;
mod history;
pub mod hooks;
pub mod ids;
pub mod interned;
pub mod names;
pub mod node_deployment;
pub mod outward;
pub mod packed;
mod phases;
pub mod plan_field;
mod policies;
mod problem;
pub mod reasons;
mod rollout;
pub mod rules;
pub mod schema;
pub mod stateful_node;
pub mod stateful_set_rollout;
mod stateful_set_rules;
pub mod status;
mod task_type;
mod topology;
mod windows;

pub use at_hook::AtHook;
pub use built_for::BuiltFor;
pub use conditions::Condition;
pub use crd::{crds, crds_yaml};
pub use ending::Ending;
pub use history::HistoryEntry;
pub use hooks::{Hook, HookAction, HookPoint, OnHookFailure};
pub use ids::{
    BuildId, GrantId, GrantedBy, NodeName, PodTemplateHash, RemovalId, RestartTime, RevisionName,
    RolloutHash, SetName, TaskId,
};
pub use interned::{JsonText, Shared};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use node_deployment::{
    BlueGreenStrategy, Creation, HardForkStrategy, InPlaceStrategy, NodeDeployment, NodeDeploymentSpec,
    NodeTemplate, NodeTemplateSpec, OnStall, Promotion, ServiceSpec, StrategyType, TemplateMeta,
    UpdateStrategy,
};
pub use outward::{Auth, Tls};
pub use packed::PackedTexts;
pub use phases::{FleetPhase, NodePhase};
pub use plan_field::RawPlan;
pub use policies::{ClaimRetention, DeletionPolicy, DisruptionBudget};
pub use problem::Problem;
pub use reasons::Reason;
pub use rollout::{NodeCounts, Rollout, Stage, Unconverged};
pub use stateful_node::{
    PodMove, Port, Sidecar, SidecarStatus, StatefulNode, StatefulNodeSpec, StatefulNodeStatus, StatefulSetRef,
};
pub use stateful_set_rollout::{
    Groups, PodUpdate, StatefulSetRollout, StatefulSetRolloutSpec, StatefulSetRolloutStatus,
    StatefulSetSelection, StatefulSetStatus, StatefulSetStrategy,
};
pub use status::{
    HookRetry, HookState, HookStatus, LastRequest, NodeDeploymentStatus, ProgressClock, Rejected,
    RequestedRollback, RetiringSet, SameContent,
};
pub use task_type::TaskType;
pub use topology::{LastNodes, Topology, UpdateOrder};
pub use windows::{Predecessor, Window};

pub use crate::engine::PlanId;
