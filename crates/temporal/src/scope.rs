//! What the tasks of a plan are handed: the facts of this look, the way to Temporal, and the way to the workers.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use windlass_engine::{Due, Outcome, TaskContext};

use crate::api::Reason;
use crate::children::Children;
use crate::events::{Event, Recorder};
use crate::planner::Facts;
use crate::planner::facts::reason_of;
use crate::planner::routing::{Next, lost};
use crate::port::{Guard, RoutingWrite, Temporal, TemporalError};

/// How soon what was just written is looked at again.
pub const SOON: Duration = Duration::from_secs(1);
/// How soon something is looked at again that announces itself to nobody.
pub const LATER: Duration = Duration::from_secs(3);

/// What the tasks of a plan are handed.
#[derive(Clone)]
pub struct WorkerScope {
    /// What is so.
    pub facts: Arc<Facts>,
    /// Temporal, where there is a way to it.
    pub temporal: Option<Arc<dyn Temporal>>,
    /// The workers' Deployments.
    pub children: Arc<Children>,
    /// What is to be told once the status is written.
    pub recorder: Recorder,
}

impl WorkerScope {
    /// Has something told.
    pub fn tell(&self, news: Event) {
        self.recorder.record(news);
    }

    /// What guards a write that is decided on this look.
    #[must_use]
    pub fn guard(&self) -> Option<Guard> {
        let described = self.facts.described()?;
        Some(Guard { token: described.conflict_token.clone(), identity: self.facts.identity.clone() })
    }

    /// Writes into the routing.
    pub async fn write(&self, write: &RoutingWrite) -> Result<(), TemporalError> {
        let (Some(temporal), Some(guard)) = (&self.temporal, self.guard()) else {
            return Err(TemporalError::Unreachable { message: "there is no way to it".to_owned() });
        };
        temporal.set_routing(&self.facts.deployment, write, &guard).await.map(drop)
    }

    /// Temporal, or what a task that needs it answers.
    pub fn temporal(&self, cx: &TaskContext<'_>) -> Result<&Arc<dyn Temporal>, Outcome> {
        match (&self.temporal, self.facts.described()) {
            (Some(temporal), Some(_)) => Ok(temporal),
            _ => Err(waits(lost(&self.facts), cx)),
        }
    }
}

/// Until when a task is expected to be done. A pause has no end that is known: the task's time begins anew with the resumption.
#[must_use]
pub fn due(cx: &TaskContext<'_>, otherwise: Due) -> Due {
    let is_paused = cx.env.find::<WorkerScope>().is_some_and(|scope| scope.facts.spec.paused);
    if is_paused { Due::Never } else { otherwise }
}

/// A task's answer to a verdict that writes nothing.
pub fn waits(next: Next, cx: &TaskContext<'_>) -> Outcome {
    match next {
        Next::Done => Outcome::Done,
        Next::Skip(message) => Outcome::Skipped { message },
        // Only the tasks that write are given such a one.
        Next::Write(_) => wait(cx, Reason::Applying, "waiting for the routing to be written", SOON),
        Next::Wait { reason, message, until } => {
            let left = until.and_then(|until| (until - cx.now).to_std().ok());
            wait(
                cx,
                reason,
                &message,
                left.map_or(LATER, |left| left.min(LATER).max(Duration::from_millis(200))),
            )
        }
    }
}

/// A wait, and why, which the status is told by.
pub fn wait(cx: &TaskContext<'_>, reason: Reason, message: &str, after: Duration) -> Outcome {
    remembering(cx, reason, message, after, &[])
}

/// A wait that remembers more than why.
pub fn remembering(
    cx: &TaskContext<'_>,
    reason: Reason,
    message: &str,
    after: Duration,
    more: &[(&str, Value)],
) -> Outcome {
    let mut progress = cx.record.progress.as_object().cloned().unwrap_or_default();
    progress.insert("reason".to_owned(), json!(reason));
    progress.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Outcome::Progress {
        message: message.to_owned(),
        recheck_after: Some(after),
        progress: Value::Object(progress),
    }
}

/// A task's answer to an error of Temporal's: all of them are waited out, and said.
pub fn troubled(cx: &TaskContext<'_>, error: &TemporalError) -> Outcome {
    match error {
        // Decided on what is not so any more: the next look decides anew.
        TemporalError::Conflict { .. } | TemporalError::VersionNotReady { .. } => {
            let reason = crate::planner::status::waits_for(&cx.record.progress).unwrap_or(Reason::Applying);
            wait(cx, reason, &error.to_string(), SOON)
        }
        TemporalError::RateLimited { retry_after, .. } => {
            let after = retry_after.unwrap_or(Duration::from_secs(5)).max(LATER);
            wait(cx, Reason::RateLimited, &error.to_string(), after)
        }
        error => wait(cx, reason_of(error), &error.to_string(), LATER),
    }
}

/// A time that a task wrote down.
#[must_use]
pub fn remembered(record: &Value, key: &str) -> Option<DateTime<Utc>> {
    serde_json::from_value(record.get(key)?.clone()).ok()
}
