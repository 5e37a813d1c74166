//! The decision logic of Windlass as pure code: the custom resources ([`api`]), the hashes and revisions of templates
//! ([`revision`]), the Kubernetes objects of a node and a fleet ([`render`]), the parts of cluster objects that are
//! read ([`observed`]), and the decisions about what happens next ([`planner`]). No I/O, no clock, no Kubernetes
//! client: the same facts and the same time give the same result. A fleet is a NodeDeployment, a node is a
//! StatefulNode.

pub mod api;
pub mod observed;
pub mod planner;
pub mod render;
pub mod revision;

pub use windlass_engine as engine;
