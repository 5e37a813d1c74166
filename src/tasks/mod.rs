//! The tasks, one file each, and what they share (`entrants`, `replacement`, `sidecar_peer`, `watch_sidecar`). A task
//! compares the observed state with the desired one, does what is missing through the cluster port, and returns if that
//! is all.

mod apply_service;
mod apply_stateful_set;
mod await_caught_up;
mod await_expansion;
mod await_nodes_at_height;
mod await_nodes_running;
mod await_promotion;
mod await_removal;
mod await_spec_update;
mod create_entrants;
mod entrants;
mod expand_claims;
mod growing;
pub mod hooks;
mod mark_ready;
mod observe_image;
mod pods;
mod replace_pod;
mod replace_stateful_set;
mod replacement;
mod retire_incumbents;
mod sidecar_peer;
mod submit_halt;
mod switch_traffic;
mod update_node_specs;
pub mod watch_sidecar;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::engine::{Outcome, TaskError};
use windlass_kube_port::ClusterError;

pub use crate::observe::pods::PodScope;
pub use crate::observe::{FleetScope, NodeScope};
pub use apply_service::ApplyService;
pub use apply_stateful_set::{ApplyStatefulSet, create_stateful_set};
pub use await_caught_up::AwaitCaughtUp;
pub use await_expansion::AwaitExpansion;
pub use await_nodes_at_height::AwaitNodesAtHeight;
pub use await_nodes_running::AwaitNodesRunning;
pub use await_promotion::AwaitPromotion;
pub use await_removal::AwaitRemoval;
pub use await_spec_update::AwaitSpecUpdate;
pub use create_entrants::CreateEntrants;
pub(crate) use entrants::keep_whole_at_hook;
pub use expand_claims::ExpandClaims;
pub use mark_ready::{MarkReady, MarkReadyResult, SidecarReadiness, request_mark_ready};
pub use observe_image::ObserveImage;
pub use replace_pod::ReplacePod;
pub use replace_stateful_set::ReplaceStatefulSet;
pub use replacement::Replacement;
pub use retire_incumbents::RetireIncumbents;
pub use submit_halt::SubmitHalt;
pub use switch_traffic::SwitchTraffic;
pub use update_node_specs::UpdateNodeSpecs;
pub use windlass_kube_port::observed::ObservedPod;

/// The reason in the history for a plan whose completed steps no longer hold.
pub const CHILD_CHANGED: &str = "ChildChanged";

/// What a task waits for while an earlier node's StatefulSet exists.
pub(crate) const SET_OF_EARLIER: &str =
    "waiting for the StatefulSet of an earlier node with this name to be deleted";

/// What a task waits for while the status of a StatefulSet is behind its template.
pub(crate) const UNSEEN: &str = "waiting for the StatefulSet controller to observe the template: \
    status.observedGeneration of the StatefulSet is behind";

/// What a task waits for while the node's grant does not allow it to replace the pod.
pub(crate) const KEPT_BY_GRANT: &str = "waiting for a new grant: the pod keeps its template until then";

/// The requeue delay after a write conflict, if no event comes first.
const AFTER_CONFLICT: Duration = Duration::from_secs(10);

/// The result of a task whose write was refused. A conflict is not a failure: the task waits with a requeue, because the
/// watch event of the other write may already have been consumed.
fn not_written(error: ClusterError) -> Result<Outcome, TaskError> {
    if error.is_conflict() {
        Ok(Outcome::recheck("waiting for the cache to show a concurrent change", AFTER_CONFLICT))
    } else {
        Err(error.into())
    }
}
