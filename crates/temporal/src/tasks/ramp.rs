//! A ramp step: the target receives a share of the tasks for some time.

use async_trait::async_trait;
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};
use windlass_kube_port::Event;

use crate::api::Reason;
use crate::planner::routing::{LAG, Next, ramp};
use crate::scope::{
    SOON, WorkerScope, due_unless_paused, outcome, recorded_time, wait_for, wait_out, wait_with,
};

/// Progress: when Windlass first observed the ramp in Temporal.
const SET_AT: &str = "setAt";
/// Progress: when the ramp was last written; Temporal's description may lag behind it.
const WRITTEN_AT: &str = "writtenAt";

/// A ramp step. Its pause starts when Temporal describes the ramp, and that time is persisted. Rare reconciles and slow
/// writes therefore neither skip nor shorten a step.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Ramp {
    percent: u8,
    #[serde(default)]
    pause_seconds: u32,
    /// True if hooks run after it; they are separate tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hooks: bool,
}

#[typetag::serde(name = "ramp")]
#[async_trait]
impl Task for Ramp {
    fn policy(&self, env: &Env) -> Policy {
        let patience = env.find::<WorkerScope>().map_or(600, |s| s.facts.spec.progress_deadline_seconds);
        Policy::default()
            .skippable()
            .unpaced()
            .due(due_unless_paused(env, Due::After(i64::from(self.pause_seconds) + i64::from(patience))))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let [set_at, written_at] = [SET_AT, WRITTEN_AT].map(|key| recorded_time(&cx.record.progress, key));
        let pause = TimeDelta::seconds(i64::from(self.pause_seconds));
        // The clock was set back, so the age of the step is unknown: its pause starts again.
        let was_set = set_at;
        let set_at = set_at.filter(|at| *at <= cx.now);
        match ramp(&scope.facts, self.percent, pause, set_at, cx.now) {
            Next::Write(write) => {
                if written_at.max(set_at).is_some_and(|at| at <= cx.now && cx.now - at < LAG) {
                    return Ok(wait_for(
                        cx,
                        Reason::Ramping,
                        "waiting for Temporal to report the ramp",
                        SOON,
                    ));
                }
                if let Err(error) = scope.write(&write).await {
                    return Ok(wait_out(cx, &error));
                }
                if let Some(at) = was_set.or(written_at) {
                    let note = format!(
                        "another client changed the ramp; Windlass restored the {} % of the plan's step",
                        self.percent
                    );
                    scope.record_event(Event::warning(
                        Reason::RampRestored,
                        format!("{}/{at}", cx.record.id),
                        note,
                    ));
                }
                let message = format!("waiting for Temporal to report the ramp of {} %", self.percent);
                // When the write takes effect is unknown until Temporal describes it.
                let times = [(WRITTEN_AT, json!(cx.now)), (SET_AT, Value::Null)];
                Ok(wait_with(cx, Reason::Ramping, &message, SOON, &times))
            }
            Next::Wait { reason, message, .. } if set_at.is_none() && reason == Reason::Ramping => {
                Ok(wait_with(cx, reason, &message, SOON, &[(SET_AT, json!(cx.now))]))
            }
            Next::Done => {
                scope.report_unconfirmed(cx);
                Ok(Outcome::Done)
            }
            next => Ok(outcome(next, cx)),
        }
    }
}
