//! Temporal: its server and workers as real processes, and a fleet of workers on a real control plane.

pub mod farm;
pub mod frontend;
pub mod person;
pub mod programs;
pub mod running;

pub use windlass_temporal_fake as fake;
