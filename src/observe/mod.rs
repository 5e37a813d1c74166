//! The scopes that tasks and reconciles work with, and the facts that decisions are based on, read from the caches.
//! Nothing here writes.

pub(crate) mod fleet_children;
mod fleet_claims;
pub mod fleet_facts;
mod fleet_hashes;
mod fleet_members;
mod fleet_record;
mod fleet_release;
pub mod fleet_scope;
mod gate;
mod growth;
pub mod neighbours;
pub mod node_scope;
pub(crate) mod pods;
pub mod recorder;
pub mod restart;

use crate::api::SetName;
use crate::api::names::{ANNOTATION_SWITCHED_TO, LABEL_SET};
use windlass_kube_port::observed::ObservedService;

pub use fleet_scope::FleetScope;
pub use node_scope::NodeScope;

/// True if a promotion has pointed a fleet's Service at this set. A selector that a person edited does not count: the
/// annotation must name the set too.
#[must_use]
pub fn is_switched(service: &ObservedService, set: &SetName) -> bool {
    service.spec.value()["selector"][LABEL_SET] == *set.as_str()
        && service.meta.annotation(ANNOTATION_SWITCHED_TO) == Some(set.as_str())
}
