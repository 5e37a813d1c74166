//! How it is made so: the writes to a fleet's and a node's child objects, each guarded, each only where something differs.
//! What is written was decided by the planner.

mod admission;
mod error;
pub mod fleet_children;
pub mod fleet_leave;
pub mod fleet_nodes;
pub mod fleet_objects;
pub mod fleet_pods;
pub mod grants;
pub mod many;
pub mod node_objects;
pub mod node_service;
pub mod patches;
pub mod traffic;

pub use admission::Admission;
pub use error::ReconcileError;
