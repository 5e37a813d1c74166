//! The demo's fleet.

/// The name of the story's fleet.
pub(super) const FLEET: &str = "db";
