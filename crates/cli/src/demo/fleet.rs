//! The demo's fleet.

/// The name of the fleet.
pub(super) const FLEET: &str = "db";
