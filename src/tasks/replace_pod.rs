//! `replace-pod`: the node's pod was made for what was granted.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{NodeScope, PodScope, Replacement, not_written, pods};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::{Cluster, ClusterError, Eviction, Kind, Target};

/// What is awaited after a pod was deleted.
const OLD_POD_LEAVES: &str = "waiting for the old pod to terminate";
/// How soon a pod is evicted again after its budget did not allow it. No event reports that it does.
const EVICT_AGAIN: Duration = Duration::from_secs(5);
/// The same after a refusal that only a user can end.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// Deletes a pod.
pub(super) async fn delete_pod(cluster: &dyn Cluster, target: Target) -> Result<Outcome, TaskError> {
    match cluster.delete(target).await {
        Ok(()) => Ok(Outcome::waiting(OLD_POD_LEAVES)),
        Err(error @ (ClusterError::Forbidden { .. } | ClusterError::DeleteRefused { .. })) => {
            Ok(Outcome::recheck(
                format!("waiting for the API server to allow the delete: {error}"),
                AFTER_REFUSAL,
            ))
        }
        Err(error) => not_written(error),
    }
}

/// Evicts a pod that leaves its machine. `kubectl drain` or an autoscaler may evict pods at the same time, so all have to ask the
/// same budget. A pod that cannot run is deleted: the budget counts it as disrupted, and might never allow that it goes.
pub(super) async fn move_pod(
    cluster: &dyn Cluster,
    target: Target,
    cannot_run: bool,
) -> Result<Outcome, TaskError> {
    if cannot_run {
        return delete_pod(cluster, target).await;
    }
    match cluster.evict(target).await {
        Ok(Eviction::Done) => Ok(Outcome::waiting(OLD_POD_LEAVES)),
        Ok(Eviction::NotNow(message)) => {
            Ok(Outcome::recheck(format!("waiting for the disruption budget: {message}"), EVICT_AGAIN))
        }
        Err(error @ (ClusterError::Forbidden { .. } | ClusterError::DeleteRefused { .. })) => {
            Ok(Outcome::recheck(
                format!("waiting for the API server to allow the eviction: {error}"),
                AFTER_REFUSAL,
            ))
        }
        Err(error) => not_written(error),
    }
}

/// Deletes the pod if it was not made for the grant or is to be moved to another machine, and waits for one that stays.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacePod {}

#[typetag::serde(name = "replace-pod")]
#[async_trait]
impl Task for ReplacePod {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(scope) = cx.env.find::<PodScope>() {
            return pods::replace(scope, cx).await;
        }
        let scope = cx.env.get::<NodeScope>()?;
        let mut replacement = scope.replacement()?;
        if matches!(replacement, Replacement::Due(_)) && scope.needs_revision_lookup().await? {
            replacement = scope.replacement()?;
        }
        let pod = match replacement {
            Replacement::Due(pod) => pod,
            Replacement::Done => return Ok(Outcome::Done),
            Replacement::NotNow(outcome) => return Ok(outcome),
        };
        let target = Target::of(Kind::Pod, &pod.meta);
        let node = scope.require()?;
        let facts = scope.facts(&node);
        if let Some(pod) = facts.pod.as_ref().filter(|pod| facts.is_at_grant(pod)) {
            return move_pod(&*scope.cluster, target, pod.main_cannot_run).await;
        }
        delete_pod(&*scope.cluster, target).await
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
