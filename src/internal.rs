//! For the command line and the tests of this workspace only: nothing here is stable, and no other program may use it.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::controller::rollout::selected;
use crate::engine::{Builtin, Recipe};
use crate::observe::FleetScope;
use crate::observe::pods::{PodFleet, PodRecipes, as_fleet};
use crate::planner::fleet::Blocker;
use crate::planner::fleet::pods::PodSet;
use crate::render::RenderOptions;
use windlass_kube_port::observed::ObservedRollout;
use windlass_kube_port::{Cluster, ClusterError, View};

pub use crate::apply::{Admission, claim_growth, fleet_objects, references};
pub use crate::cache::remembered::Remembered;
pub use crate::controller::KINDS_OF_A_SET;
pub use crate::hooks::{HookRules, Values};
pub use crate::listen::listen;
pub use crate::metrics::CONTENT_TYPE;
pub use crate::observe::node_scope::{Belongs, belongs};
pub use crate::outward::{HttpClient, KeptConnections};
pub use crate::probe::hooks::{HookOwner, HookProber};
pub use crate::sidecar::url::parse_http;
pub use crate::tasks::hooks::{
    About, DeletedJobs, HookList, HookScope, JobOwner, Unfit, check_all, delete_jobs,
};
#[cfg(feature = "otlp")]
pub use crate::traces::Otlp;

/// The metrics of an operator's requests, in which those of others in its process are counted.
#[must_use]
pub fn port_metrics(health: &crate::operator::Health) -> windlass_kube_port::metrics::SharedMetrics {
    health.port_metrics()
}

/// The basis of the operator's decisions about a StatefulSetRollout.
pub struct RolloutScope {
    /// As a fleet whose nodes are pods. A StatefulSet that it may not hold blocks it.
    pub scope: FleetScope,
    /// The StatefulSets that it holds, in the order in which they are updated.
    pub sets: Vec<PodSet>,
    /// The selected names that do not exist.
    pub missing: Vec<String>,
}

/// The scope in which the operator decides about a StatefulSetRollout; `None` if its spec cannot be read.
///
/// # Errors
///
/// The owner of a missing StatefulSet cannot be looked up.
pub async fn rollout_scope(
    rollout: &ObservedRollout,
    view: &Arc<View>,
    cluster: &Arc<dyn Cluster>,
    now: DateTime<Utc>,
) -> Result<Option<RolloutScope>, ClusterError> {
    let Ok(spec) = &rollout.spec else { return Ok(None) };
    let selection = selected(view, &**cluster, &rollout.meta, spec).await?;
    let missing = selection.missing.clone();
    let recipes =
        PodRecipes { update: Recipe::builtin(Builtin::PodUpdate), move_: Recipe::builtin(Builtin::MoveNode) };
    let pods = PodFleet::new(rollout, selection.sets, selection.missing, spec.strategy.groups, recipes);
    let sets = pods.observed(view);
    let Some(fleet) = as_fleet(rollout, &pods, view) else { return Ok(None) };
    let (view, options) = (view.clone(), Arc::new(RenderOptions::default()));
    let scope = FleetScope::of(&fleet, view, cluster.clone(), Arc::default(), Arc::default(), options, now);
    Ok(scope.map(|scope| {
        let mut scope = scope.of_pods(Arc::new(pods));
        scope.block(selection.refused.into_iter().next().map(Blocker::Spec));
        RolloutScope { scope, sets, missing }
    }))
}
