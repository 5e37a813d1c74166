//! One step of a ramp: a part of the tasks goes to the wanted version, for a while.

use async_trait::async_trait;
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_engine::{Due, Outcome, Task, TaskContext, TaskError};

use crate::api::Reason;
use crate::events::Event;
use crate::planner::routing::{LAG, Next, ramp};
use crate::scope::{SOON, WorkerScope, due, remembered, remembering, troubled, wait, waits};

/// What a task remembers: since when the step was seen to hold.
const SET_AT: &str = "setAt";
/// And when it was last written: what was written a moment ago may not be described yet.
const WRITTEN_AT: &str = "writtenAt";

/// One step of a ramp. Its time begins when Temporal describes it, and is persisted: however seldom it is looked at, and however
/// long a write takes, no step is passed over, and none is shorter.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Ramp {
    percent: u8,
    #[serde(default)]
    pause_seconds: u32,
    /// Whether the rollout stops after it for hooks, which the plan has as tasks of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hooks: bool,
}

#[typetag::serde(name = "ramp")]
#[async_trait]
impl Task for Ramp {
    fn due(&self, cx: &TaskContext<'_>) -> Due {
        let patience = cx.env.find::<WorkerScope>().map_or(600, |s| s.facts.spec.progress_deadline_seconds);
        due(cx, Due::After(i64::from(self.pause_seconds) + i64::from(patience)))
    }

    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<WorkerScope>()?;
        let [set_at, written_at] = [SET_AT, WRITTEN_AT].map(|key| remembered(&cx.record.progress, key));
        let pause = TimeDelta::seconds(i64::from(self.pause_seconds));
        // A clock that went back knows no more how long the step has been held: its time begins anew.
        let was_set = set_at;
        let set_at = set_at.filter(|at| *at <= cx.now);
        match ramp(&scope.facts, self.percent, pause, set_at, cx.now) {
            Next::Write(write) => {
                if written_at.max(set_at).is_some_and(|at| at <= cx.now && cx.now - at < LAG) {
                    return Ok(wait(cx, Reason::Ramping, "waiting for Temporal to describe the ramp", SOON));
                }
                if let Err(error) = scope.write(&write).await {
                    return Ok(troubled(cx, &error));
                }
                if let Some(at) = was_set.or(written_at) {
                    let note = format!(
                        "the ramp was changed by hand, and is put back at the plan's step of {} %",
                        self.percent
                    );
                    scope.tell(Event::warning("RampRestored", format!("{}/{at}", cx.record.id), note));
                }
                let message = format!("waiting for Temporal to describe the ramp of {} %", self.percent);
                // When it came into force nobody knows yet: the write may have taken its time.
                let times = [(WRITTEN_AT, json!(cx.now)), (SET_AT, Value::Null)];
                Ok(remembering(cx, Reason::Ramping, &message, SOON, &times))
            }
            Next::Wait { reason, message, .. } if set_at.is_none() && reason == Reason::Ramping => {
                Ok(remembering(cx, reason, &message, SOON, &[(SET_AT, json!(cx.now))]))
            }
            next => Ok(waits(next, cx)),
        }
    }
}
