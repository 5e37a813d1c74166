//! The tasks that switch the routing to the target, and back from an obsolete version.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};

use crate::api::Reason;
use crate::planner::routing::{self, Next};
use crate::scope::{
    SOON, WorkerScope, due_unless_paused, outcome, recorded_time, wait_for, wait_out, wait_with,
};

/// Progress: when Windlass first observed in Temporal that the target is the current version.
const SET_AT: &str = "setAt";

/// Makes the target the current version.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SetCurrent {}

#[typetag::serde(name = "set-current")]
#[async_trait]
impl Task for SetCurrent {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().skippable().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let set_at = recorded_time(&cx.record.progress, SET_AT);
        let next = routing::set_current(&scope.facts, set_at, cx.now);
        match next {
            Next::Wait { reason, message, .. }
                if set_at.is_none() && scope.facts.current() == Some(&scope.facts.target.build) =>
            {
                Ok(wait_with(cx, reason, &message, SOON, &[(SET_AT, json!(cx.now))]))
            }
            Next::Done => {
                scope.report_unconfirmed(cx);
                Ok(Outcome::Done)
            }
            next => carry_out(cx, scope, next).await,
        }
    }
}

/// Ends a ramp to an obsolete version.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClearRamp {}

#[typetag::serde(name = "clear-ramp")]
#[async_trait]
impl Task for ClearRamp {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        carry_out(cx, scope, routing::clear_ramp(&scope.facts)).await
    }
}

async fn carry_out(cx: &TaskContext<'_>, scope: &WorkerScope, next: Next) -> Result<Outcome, TaskError> {
    let Next::Write(write) = next else { return Ok(outcome(next, cx)) };
    match scope.write(&write).await {
        Ok(()) => Ok(wait_for(cx, Reason::Promoting, "waiting for Temporal to report the new routing", SOON)),
        Err(error) => Ok(wait_out(cx, &error)),
    }
}
