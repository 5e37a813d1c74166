//! Compares a written status with the one before it. Tasks and plans that ended in between are counted, logged, and
//! exported as spans.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tracing::info;

use super::Context;
use super::ended::Ended;
pub use super::ended::{Progress, Recorded, tasks_over};
use crate::api::HistoryEntry;
use crate::engine::{Plan, TaskRecord};
use crate::metrics::Metrics;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::Meta;

/// Counts, logs and exports the plans and tasks that ended between two statuses of an object.
pub fn record(
    cx: &Context,
    kind: Kind,
    meta: &Meta,
    before: &impl Recorded,
    after: &impl Recorded,
    progress: Progress<'_>,
) {
    let ended = Ended::between(before, after, progress);
    count(&cx.metrics, kind, &ended);
    log(kind, meta, &ended);
    cx.traces.export(|| super::spans::of(cx, kind, meta, &ended));
}

fn count(metrics: &Metrics, kind: Kind, ended: &Ended<'_>) {
    // The plans of nodes are parts of rollouts, and are not counted separately.
    for entry in ended.plans.iter().filter(|_| kind != Kind::StatefulNode) {
        if let Some(took) = took(entry.started_at, entry.finished_at) {
            metrics.rollout_ended(&entry.outcome, took);
        }
    }
    for task in &ended.tasks {
        if let Some(took) = took(task.started_at, task.finished_at) {
            metrics.task_ended(&task.type_, &format!("{:?}", task.state), took);
        }
    }
}

fn log(kind: Kind, meta: &Meta, ended: &Ended<'_>) {
    let (kind, object) = (kind.name(), meta.key());
    let seconds = |from, to| took(from, to).unwrap_or_default().as_secs_f64();
    for entry in &ended.plans {
        let HistoryEntry { plan_id: plan, recipe, outcome, reason, .. } = entry;
        let seconds = seconds(entry.started_at, entry.finished_at);
        info!(kind, %object, plan, recipe, outcome, reason, seconds, "a plan ended");
    }
    let Some(Plan { id: plan, recipe, .. }) = ended.plan else { return };
    let plan = plan.as_str();
    if ended.began {
        info!(kind, %object, plan, recipe, "a plan began");
    }
    for task in &ended.tasks {
        let TaskRecord { id, type_, state, message: said, .. } = task;
        let seconds = seconds(task.started_at, task.finished_at);
        info!(kind, %object, plan, task = id, r#type = type_, ?state, said, seconds, "a task ended");
    }
}

/// Adds the stored plan to the reconcile's log fields, and returns the IDs of its tasks that are over. The error is a
/// plan as well: the one that records why it ends now.
pub fn found(plan: &Result<Option<Plan>, Box<Plan>>) -> Vec<String> {
    let known = match plan {
        Ok(plan) => plan.as_ref(),
        Err(ended) => Some(&**ended),
    };
    note(known);
    known.map(tasks_over).unwrap_or_default()
}

/// Sets the `plan` and `task` fields of the current span, so that log entries of the reconcile have them.
fn note(plan: Option<&Plan>) {
    let Some(plan) = plan.filter(|plan| plan.is_active()) else { return };
    let span = tracing::Span::current();
    span.record("plan", plan.id.as_str());
    if let Some(task) = plan.current_task() {
        span.record("task", task.id.as_str());
    }
}

/// The time between two timestamps: `None` if either is missing, zero if the clock was set back.
pub fn took(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> Option<Duration> {
    Some((to? - from?).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::NodeDeploymentStatus;

    fn fleet(task: &str, history: &Value) -> NodeDeploymentStatus {
        let at = |second: u32| format!("2030-01-01T12:00:{second:02}Z");
        let over = |state: &str| (state != "Running").then(|| at(12));
        serde_json::from_value(json!({
            "plan": {"id": "p1", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active", "startedAt": at(0), "tasks": [
                {"id": "p1-0", "type": "update-node-specs", "state": "Complete", "startedAt": at(0), "finishedAt": at(2)},
                {"id": "p1-1", "type": "mark-ready", "state": task, "startedAt": at(2), "finishedAt": over(task)},
            ]},
            "history": history,
        }))
        .unwrap()
    }

    #[test]
    fn finished_plans_and_tasks_are_counted_once_with_duration() {
        let metrics = Metrics::default();
        let ended = |plan: &str, outcome: &str| json!({"planID": plan, "outcome": outcome, "startedAt": "2030-01-01T12:00:00Z", "finishedAt": "2030-01-01T12:05:00Z"});
        let before = fleet("Running", &json!([ended("p0", "Complete")]));
        let after = fleet("Complete", &json!([ended("p0", "Complete"), ended("p1", "Aborted")]));
        let none = NodeDeploymentStatus::default();
        for (from, to) in [(&none, &before), (&before, &before), (&before, &after)] {
            let plan = |status: &NodeDeploymentStatus| status.plan.as_ref().map(|plan| plan.parse().unwrap());
            let finished_tasks = plan(from).as_ref().map(tasks_over).unwrap_or_default();
            let plan = plan(to);
            let progress = Progress { plan: plan.as_ref(), finished_tasks: &finished_tasks };
            let ended = Ended::between(from, to, progress);

            count(&metrics, Kind::NodeDeployment, &ended);
        }
        let text = metrics.text(true, &[]);
        for line in [
            "windlass_task_duration_seconds_sum{type=\"update-node-specs\",outcome=\"Complete\"} 2.0",
            "windlass_task_duration_seconds_count{type=\"update-node-specs\",outcome=\"Complete\"} 1",
            "windlass_task_duration_seconds_sum{type=\"mark-ready\",outcome=\"Complete\"} 10.0",
            "windlass_rollout_duration_seconds_sum{outcome=\"Aborted\"} 300.0",
            "windlass_rollout_duration_seconds_count{outcome=\"Complete\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
    }
}
