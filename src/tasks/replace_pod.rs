//! `replace-pod`: the node's pod is at the StatefulSet's update revision.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CHILD_CHANGED, node_scope::NodeScope};
use crate::cluster::{Kind, Target};
use crate::engine::{Outcome, Task, TaskContext, TaskError};

/// Deletes the pod that is not at the update revision, and waits for the one that is.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacePod {}

#[typetag::serde(name = "replace-pod")]
#[async_trait]
impl Task for ReplacePod {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        let facts = scope.facts(&node);
        let Some(set) = facts.live() else {
            return Ok(Outcome::invalidated(CHILD_CHANGED, "the node's StatefulSet is gone"));
        };
        if !facts.template_is_granted() {
            return Ok(Outcome::invalidated(
                CHILD_CHANGED,
                "the StatefulSet's template is not the granted one",
            ));
        }
        // A pod deleted before the controller has seen the new template would come back at the old one.
        if !set.observed {
            return Ok(Outcome::waiting("waiting for the StatefulSet controller to see the new template"));
        }
        let Some(pod) = &facts.pod else {
            return Ok(Outcome::waiting("waiting for the StatefulSet controller to create the pod"));
        };
        if pod.terminating {
            return Ok(Outcome::waiting("waiting for the old pod to terminate"));
        }
        if facts.is_at_update_revision(pod) {
            return Ok(Outcome::Done);
        }
        if facts.is_kept_by_spent_grant() {
            return Ok(Outcome::waiting("waiting for a new grant: the last one was already used"));
        }
        let Some(live) = scope.pod().filter(|p| p.meta.uid == pod.uid && pod.owned) else {
            return Ok(Outcome::waiting("waiting for the pod of this name, which is not the StatefulSet's"));
        };
        scope.cluster.delete(Target::of(Kind::Pod, &live.meta)).await?;
        Ok(Outcome::waiting("waiting for the old pod to terminate"))
    }

    fn replayable(&self) -> bool {
        true
    }
}
