//! `apply-service`: the node's headless Service exists and matches the spec.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{NodeScope, not_written};
use crate::apply::node_service::{NotApplied, apply};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};

/// Creates the node's headless Service, or updates it to match the spec.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyService {}

#[typetag::serde(name = "apply-service")]
#[async_trait]
impl Task for ApplyService {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        match apply(scope, &node).await {
            Ok(outcome) => Ok(outcome),
            Err(NotApplied::Conflict(error)) => not_written(error),
            Err(NotApplied::Failed(error)) => Err(error.into()),
            Err(NotApplied::Other(error)) => Err(error),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
