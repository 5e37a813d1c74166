//! The tasks that move all tasks: to the wanted version, or back from one that is not wanted any more.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_engine::{Due, Outcome, Task, TaskContext, TaskError};

use crate::api::Reason;
use crate::planner::routing::{self, Next};
use crate::scope::{SOON, WorkerScope, due, troubled, wait, waits};

/// Makes the wanted version the current one.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SetCurrent {}

#[typetag::serde(name = "set-current")]
#[async_trait]
impl Task for SetCurrent {
    fn due(&self, cx: &TaskContext<'_>) -> Due {
        due(cx, Due::Default)
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        carry_out(cx, scope, routing::set_current(&scope.facts)).await
    }
}

/// Takes a ramp back that leads to a version that is not wanted any more.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClearRamp {}

#[typetag::serde(name = "clear-ramp")]
#[async_trait]
impl Task for ClearRamp {
    fn due(&self, cx: &TaskContext<'_>) -> Due {
        due(cx, Due::Default)
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        carry_out(cx, scope, routing::clear_ramp(&scope.facts)).await
    }
}

async fn carry_out(cx: &TaskContext<'_>, scope: &WorkerScope, next: Next) -> Result<Outcome, TaskError> {
    let Next::Write(write) = next else { return Ok(waits(next, cx)) };
    match scope.write(&write).await {
        Ok(()) => Ok(wait(cx, Reason::Promoting, "waiting for Temporal to describe the new routing", SOON)),
        Err(error) => Ok(troubled(cx, &error)),
    }
}
