//! Makes the wanted version's Deployment, or updates it where it is.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_engine::{Due, Outcome, Task, TaskContext, TaskError};

use crate::api::Reason;
use crate::cluster::ClusterError;
use crate::planner::routing::{PAUSED, lost};
use crate::scope::{LATER, SOON, WorkerScope, due, wait, waits};

/// Makes the wanted version's Deployment, or updates it where it is.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVersion {}

#[typetag::serde(name = "create-version")]
#[async_trait]
impl Task for CreateVersion {
    fn due(&self, cx: &TaskContext<'_>) -> Due {
        due(cx, Due::Default)
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        if scope.facts.spec.paused {
            return Ok(wait(cx, Reason::Paused, PAUSED, LATER));
        }
        if let Some(sentence) = &scope.facts.invalid {
            return Ok(wait(cx, Reason::InvalidSpec, sentence, LATER));
        }
        if scope.facts.described().is_none() {
            return Ok(waits(lost(&scope.facts), cx));
        }
        match scope.children.apply_target(&scope.facts).await {
            Ok(false) => Ok(Outcome::Done),
            Ok(true) => {
                let said = format!("waiting for the Deployment of {} to be seen", scope.facts.target.build);
                Ok(wait(cx, Reason::Applying, &said, SOON))
            }
            Err(ClusterError::Refused(sentence)) => Ok(wait(cx, Reason::InvalidSpec, &sentence, LATER)),
            Err(error) => Err(TaskError::transient(error.to_string())),
        }
    }
}
