//! The tasks that only wait: for workers, for Temporal to list them, for a person.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};

use crate::planner::verdicts;
use crate::scope::{WorkerScope, due_unless_paused, outcome};

/// Waits until the target's workers are available.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitAvailable {}

#[typetag::serde(name = "await-available")]
#[async_trait]
impl Task for AwaitAvailable {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Ok(outcome(verdicts::await_available(&cx.env.get::<WorkerScope>()?.facts), cx))
    }
}

/// Waits until Temporal lists the target and one of its workers polls.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitRegistered {}

#[typetag::serde(name = "await-registered")]
#[async_trait]
impl Task for AwaitRegistered {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let began = cx.record.started_at.unwrap_or(cx.now);
        Ok(outcome(verdicts::await_registered(&scope.facts, began, cx.now), cx))
    }
}

/// Waits until a person promotes the target.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitPromote {}

#[typetag::serde(name = "await-promote")]
#[async_trait]
impl Task for AwaitPromote {
    fn policy(&self, _: &Env) -> Policy {
        Policy::default().unpaced().due(Due::Never)
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Ok(outcome(verdicts::await_promote(&cx.env.get::<WorkerScope>()?.facts), cx))
    }
}
