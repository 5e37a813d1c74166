//! What Windlass decides, as pure code: the custom resources ([`api`]), what a template amounts to ([`revision`]), the
//! Kubernetes objects that a node and a fleet consist of ([`render`]), what is read of the objects of a cluster
//! ([`observed`]), and what should happen next ([`planner`]). No I/O, no clock, no client of Kubernetes: the same facts
//! and the same time give the same answer.

pub mod api;
pub mod observed;
pub mod parts;
pub mod planner;
pub mod render;
pub mod revision;

pub use windlass_engine as engine;
