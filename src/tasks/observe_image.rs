//! `observe-image`: the new pod's main container runs the image.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CHILD_CHANGED, NodeScope, UNSEEN};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};

/// Waits until the pod that was made for the grant runs the desired image.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveImage {}

#[typetag::serde(name = "observe-image")]
#[async_trait]
impl Task for ObserveImage {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        let facts = scope.facts(&node);
        let Some(set) = facts.live() else {
            return Ok(Outcome::invalidated(CHILD_CHANGED, "the node's StatefulSet no longer exists"));
        };
        let Some(pod) = facts.staying_pod() else {
            return Ok(Outcome::waiting("waiting for the pod to be created again"));
        };
        if !set.observed {
            return Ok(Outcome::waiting(UNSEEN));
        }
        if !facts.is_at_template(pod) {
            return Ok(Outcome::invalidated(CHILD_CHANGED, "the pod was created for another template"));
        }
        let running = facts.running();
        let is_seen = running.pod_uid.as_ref() == Some(&pod.uid);
        if pod.running && is_seen && running.hash.is_some() && running.hash.as_ref() == facts.grant() {
            return Ok(Outcome::Done);
        }
        let why = pod.problem.as_ref().map(|p| format!("{}: {}", p.reason, p.message)).unwrap_or_default();
        Ok(Outcome::waiting(format!("waiting for the pod to run {}: {why}", facts.pod_image(pod))))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
