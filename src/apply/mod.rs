//! The writes to the child objects of fleets and nodes. Each write is guarded by UID and resourceVersion, and is made
//! only if something differs. The planner decides what is written.

mod admission;
pub mod claim_growth;
pub mod disruption_budget;
pub mod dry_runs;
mod error;
pub mod fleet_children;
pub mod fleet_leave;
pub mod fleet_nodes;
pub mod fleet_objects;
pub mod fleet_pods;
pub mod grants;
pub mod hold;
pub mod many;
mod moves;
pub mod node_objects;
pub mod node_service;
pub mod patches;
pub mod references;
mod reverted;
mod same_content;
pub mod traffic;
pub mod unwatched;

pub use admission::Admission;
pub use error::ReconcileError;
