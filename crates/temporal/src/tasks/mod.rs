//! The tasks of a rollout, one file each, and those of an evacuation. Their names and parameters are wire format.

mod claim_manager;
mod create_version;
mod evacuate;
mod ramp;
mod routing;
mod run_gate;
mod waits;

pub use claim_manager::ClaimManager;
pub use create_version::CreateVersion;
pub use evacuate::{AwaitDrained, CountWorkflows, MoveWorkflows};
pub use ramp::Ramp;
pub use routing::{ClearRamp, SetCurrent};
pub use run_gate::{RunGate, workflow_id};
pub use waits::{AwaitAvailable, AwaitPromote, AwaitRegistered};
