//! Reads the caches: the scopes that tasks and reconciles work with, and the facts that decisions are made from. Nothing here
//! writes.

mod fleet_children;
pub mod fleet_facts;
mod fleet_hashes;
mod fleet_lost;
mod fleet_members;
mod fleet_record;
mod fleet_release;
pub mod fleet_scope;
pub mod node_scope;
pub mod recorder;
pub mod restart;

use crate::api::SetName;
use crate::api::names::{ANNOTATION_SWITCHED_TO, LABEL_SET};
use crate::cluster::observed::ObservedService;

pub use fleet_scope::FleetScope;
pub use node_scope::NodeScope;

/// Whether a promotion has moved a fleet's Service to this set: by our own write, not by a hand's.
#[must_use]
pub fn is_switched(service: &ObservedService, set: &SetName) -> bool {
    service.spec.value()["selector"][LABEL_SET] == *set.as_str()
        && service.meta.annotation(ANNOTATION_SWITCHED_TO) == Some(set.as_str())
}
