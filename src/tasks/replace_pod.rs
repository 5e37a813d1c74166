//! `replace-pod`: the node's pod was made for what was granted.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{NodeScope, PodScope, Replacement, not_written, pods};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::{Kind, Target};

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
        match scope.cluster.delete(Target::of(Kind::Pod, &pod.meta)).await {
            Ok(()) => Ok(Outcome::waiting("waiting for the old pod to terminate")),
            Err(error) => not_written(error),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
