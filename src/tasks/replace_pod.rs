//! `replace-pod`: the node's pod was made for what was granted.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{NodeScope, Replacement, written};
use crate::cluster::{Kind, Target};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Deletes the pod that was made for something else than the grant, and waits for the one that is made for it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacePod {}

#[typetag::serde(name = "replace-pod")]
#[async_trait]
impl Task for ReplacePod {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let mut replacement = scope.replacement()?;
        if matches!(replacement, Replacement::Due(_)) && scope.asks_for_revision().await? {
            replacement = scope.replacement()?;
        }
        let pod = match replacement {
            Replacement::Due(pod) => pod,
            Replacement::Done => return Ok(Outcome::Done),
            Replacement::NotNow(outcome) => return Ok(outcome),
        };
        if let Err(outcome) = written(scope.cluster.delete(Target::of(Kind::Pod, &pod.meta)).await) {
            return outcome;
        }
        Ok(Outcome::waiting("waiting for the old pod to terminate"))
    }

    fn replayable(&self) -> bool {
        true
    }
}
