//! Creates the target's Deployment, or updates it in place.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::ClusterError;

use crate::api::Reason;
use crate::planner::routing::{PAUSED, lost};
use crate::scope::{LATER, SOON, WorkerScope, due_unless_paused, outcome, wait_for};

/// Creates the target's Deployment, or updates it in place.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVersion {}

#[typetag::serde(name = "create-version")]
#[async_trait]
impl Task for CreateVersion {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        if scope.facts.spec.paused {
            return Ok(wait_for(cx, Reason::Paused, PAUSED, LATER));
        }
        if let Some(sentence) = &scope.facts.invalid {
            return Ok(wait_for(cx, Reason::InvalidSpec, sentence, LATER));
        }
        if scope.facts.described().is_none() {
            return Ok(outcome(lost(&scope.facts), cx));
        }
        match scope.children.apply_target(&scope.facts).await {
            Ok(false) => Ok(Outcome::Done),
            Ok(true) if scope.facts.secrets.hold_updates() => {
                let sentence = scope.facts.secrets.sentence();
                let reason = sentence.map_or(Reason::Applying, |_| Reason::ConnectionSecretNotFound);
                let message = sentence
                    .unwrap_or("waiting until the Secrets of the workers have not changed for some seconds");
                Ok(wait_for(cx, reason, message, SOON))
            }
            Ok(true) => {
                let message = format!(
                    "waiting for the Deployment of {} to be created or updated",
                    scope.facts.target.build
                );
                Ok(wait_for(cx, Reason::Applying, &message, SOON))
            }
            Err(ClusterError::Refused { message, .. }) => {
                Ok(wait_for(cx, Reason::InvalidSpec, &message, LATER))
            }
            Err(error) => Err(TaskError::transient(error.message())),
        }
    }
}
