//! The scope of a plan's tasks: the facts of this reconcile, and the clients of Temporal and Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use windlass_engine::{Due, Env, Outcome, TaskContext};
use windlass_kube_port::{Cluster, Event, EventBuffer};

use crate::api::Reason;
use crate::children::Children;
use crate::planner::Facts;
use crate::planner::facts::reason_of;
use crate::planner::routing::{Next, SETTLES_IN, lost};
use crate::port::{Guard, RoutingWrite, Temporal, TemporalError};

/// Requeue after a write.
pub const SOON: Duration = Duration::from_secs(1);
/// Requeue for a change that causes no watch event.
pub const LATER: Duration = Duration::from_secs(3);

/// The scope of a plan's tasks.
#[derive(Clone)]
pub struct WorkerScope {
    /// The observed state.
    pub facts: Arc<Facts>,
    /// The client of Temporal, if there is a connection.
    pub temporal: Option<Arc<dyn Temporal>>,
    /// The workers' Deployments.
    pub children: Arc<Children>,
    /// The port to the API server, for what no cache has.
    pub cluster: Arc<dyn Cluster>,
    /// The events to send once the status is written.
    pub recorder: EventBuffer,
}

impl WorkerScope {
    /// Records an event.
    pub fn record_event(&self, event: Event) {
        self.recorder.record(event);
    }

    /// Records an event if Temporal has not reported that all task queues use the routing, and the task goes on anyway.
    pub fn report_unconfirmed(&self, cx: &TaskContext<'_>) {
        if self.facts.described().is_some_and(|described| described.is_settled) {
            return;
        }
        let note = format!(
            "Temporal has not reported within {} s that all task queues use the routing to {}; the routing is set and its \
             workers poll, so the rollout continues",
            SETTLES_IN.num_seconds(),
            self.facts.target.build
        );
        self.record_event(Event::warning(Reason::RoutingUnconfirmed, cx.record.id.clone(), note));
    }

    /// The guard for a write that is based on these facts.
    #[must_use]
    pub fn guard(&self) -> Option<Guard> {
        let described = self.facts.described()?;
        Some(Guard { token: described.conflict_token.clone(), identity: self.facts.identity.clone() })
    }

    /// Changes the routing.
    pub async fn write(&self, write: &RoutingWrite) -> Result<(), TemporalError> {
        let (Some(temporal), Some(guard)) = (&self.temporal, self.guard()) else {
            return Err(TemporalError::Unreachable {
                message: "there is no connection to the server".to_owned(),
            });
        };
        temporal.set_routing(&self.facts.deployment, write, &guard).await.map(drop)
    }

    /// The client of Temporal, or the wait that a task returns without one.
    pub fn temporal(&self, cx: &TaskContext<'_>) -> Result<&Arc<dyn Temporal>, Outcome> {
        match (&self.temporal, self.facts.described()) {
            (Some(temporal), Some(_)) => Ok(temporal),
            _ => Err(outcome(lost(&self.facts), cx)),
        }
    }
}

/// The deadline of a task. While the rollout is paused there is none: the task's time starts again when it is
/// resumed.
#[must_use]
pub fn due_unless_paused(env: &Env, otherwise: Due) -> Due {
    let is_paused = env.find::<WorkerScope>().is_some_and(|scope| scope.facts.spec.paused);
    if is_paused { Due::Never } else { otherwise }
}

/// Converts a next step that writes nothing into a task's outcome.
pub fn outcome(next: Next, cx: &TaskContext<'_>) -> Outcome {
    match next {
        Next::Done => Outcome::Done,
        Next::Skip(message) => Outcome::Skipped { message },
        // Tasks that write handle this case themselves.
        Next::Write(_) => wait_for(cx, Reason::Applying, "waiting for the routing to be updated", SOON),
        Next::Wait { reason, message, until } => {
            let left = until.and_then(|until| (until - cx.now).to_std().ok());
            wait_for(
                cx,
                reason,
                &message,
                left.map_or(LATER, |left| left.min(LATER).max(Duration::from_millis(200))),
            )
        }
    }
}

/// A wait with a reason, which the status shows.
pub fn wait_for(cx: &TaskContext<'_>, reason: Reason, message: &str, after: Duration) -> Outcome {
    wait_with(cx, reason, message, after, &[])
}

/// A wait that keeps further values in the task's progress.
pub fn wait_with(
    cx: &TaskContext<'_>,
    reason: Reason,
    message: &str,
    after: Duration,
    more: &[(&str, Value)],
) -> Outcome {
    let mut progress = cx.record.progress.as_object().cloned().unwrap_or_default();
    // The task still waits for the same. The status reports a limit of reads that lasts.
    if reason != Reason::RateLimited {
        progress.insert("reason".to_owned(), json!(reason));
    }
    progress.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Outcome::Progress {
        message: message.to_owned(),
        recheck_after: Some(after),
        progress: Value::Object(progress),
    }
}

/// Waits after an error from Temporal, and reports it.
pub fn wait_out(cx: &TaskContext<'_>, error: &TemporalError) -> Outcome {
    match error {
        // The facts are stale: the next reconcile decides again.
        TemporalError::Conflict { .. } | TemporalError::VersionNotReady { .. } => {
            let reason =
                crate::planner::status::awaited_reason(&cx.record.progress).unwrap_or(Reason::Applying);
            wait_for(cx, reason, &error.to_string(), SOON)
        }
        TemporalError::RateLimited { retry_after, .. } => {
            let after = retry_after.unwrap_or(Duration::from_secs(5)).max(LATER);
            wait_for(cx, Reason::RateLimited, &error.to_string(), after)
        }
        error => wait_for(cx, reason_of(error), &error.to_string(), LATER),
    }
}

/// A time from a task's progress.
#[must_use]
pub fn recorded_time(record: &Value, key: &str) -> Option<DateTime<Utc>> {
    serde_json::from_value(record.get(key)?.clone()).ok()
}
