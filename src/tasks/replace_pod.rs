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

/// Deletes a pod that leaves its machine. Whoever drains the machine may evict pods at the same time, so both have to ask
/// the same budget. Without the right to evict, the pod is deleted all the same: nodes that are unavailable were counted.
pub(super) async fn move_pod(cluster: &dyn Cluster, target: Target) -> Result<Outcome, TaskError> {
    match cluster.evict(target.clone()).await {
        Ok(Eviction::Done) => return Ok(Outcome::waiting(OLD_POD_LEAVES)),
        Ok(Eviction::NotNow(message)) => {
            return Ok(Outcome::recheck(
                format!("waiting for the disruption budget: {message}"),
                EVICT_AGAIN,
            ));
        }
        Err(ClusterError::Forbidden { .. }) => {}
        Err(error) => return not_written(error),
    }
    match cluster.delete(target).await {
        Ok(()) => Ok(Outcome::waiting(OLD_POD_LEAVES)),
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
        if scope.facts(&node).needs_move() && pod.is_ready() {
            return move_pod(&*scope.cluster, target).await;
        }
        match scope.cluster.delete(target).await {
            Ok(()) => Ok(Outcome::waiting(OLD_POD_LEAVES)),
            Err(error) => not_written(error),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
