//! Makes Windlass the manager of the deployment in Temporal, so that no other client changes its routing unnoticed.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::Event;

use crate::api::Reason;
use crate::planner::routing::{Next, PAUSED, owned};
use crate::scope::{LATER, SOON, WorkerScope, due_unless_paused, outcome, wait_for, wait_out};

/// Makes Windlass the manager of the deployment, unless another identity is. Temporal itself would allow the
/// takeover.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimManager {}

#[typetag::serde(name = "claim-manager")]
#[async_trait]
impl Task for ClaimManager {
    fn policy(&self, env: &Env) -> Policy {
        Policy::default().unpaced().due(due_unless_paused(env, Due::Default))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let temporal = match scope.temporal(cx) {
            Ok(temporal) => temporal,
            Err(outcome) => return Ok(outcome),
        };
        if scope.facts.is_manager() {
            return Ok(Outcome::Done);
        }
        if scope.facts.other_manager().is_some() {
            let next = owned(&scope.facts);
            if let Next::Wait { message, .. } = &next {
                scope.record_event(Event::warning(Reason::OwnedByOther, &cx.plan.id, message.clone()));
            }
            return Ok(outcome(next, cx));
        }
        if scope.facts.spec.paused {
            return Ok(wait_for(cx, Reason::Paused, PAUSED, LATER));
        }
        let Some(guard) = scope.guard() else {
            return Ok(wait_for(
                cx,
                Reason::TemporalUnreachable,
                "waiting for a connection to Temporal",
                LATER,
            ));
        };
        match temporal.set_manager(&scope.facts.deployment, true, &guard).await {
            Ok(_) => Ok(wait_for(
                cx,
                Reason::Applying,
                "waiting for Temporal to report Windlass as the manager",
                SOON,
            )),
            Err(error) => Ok(wait_out(cx, &error)),
        }
    }
}
