//! What a status that was written says has ended since the one before it, for counting: tasks, and plans of fleets.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::api::{HistoryEntry, NodeDeploymentStatus, StatefulNodeStatus};
use crate::engine::{Plan, TaskRecord, TaskState};
use crate::metrics::Metrics;

/// A status with a history.
pub trait Recorded {
    /// The rollouts that ended.
    fn rollouts(&self) -> &[HistoryEntry];
}

impl Recorded for NodeDeploymentStatus {
    fn rollouts(&self) -> &[HistoryEntry] {
        &self.history
    }
}

impl Recorded for StatefulNodeStatus {
    fn rollouts(&self) -> &[HistoryEntry] {
        &[]
    }
}

/// The plan that a status is written with, beside the same plan as it was stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress<'a> {
    /// As it is written.
    pub plan: Option<&'a Plan>,
    /// The IDs of the tasks that were over before.
    pub over_before: &'a [String],
}

/// The IDs of a plan's tasks that are over.
pub fn tasks_over(plan: &Plan) -> Vec<String> {
    plan.tasks.iter().filter(|task| is_over(task)).map(|task| task.id.clone()).collect()
}

/// Counts what ended between two statuses.
pub fn count(metrics: &Metrics, before: &impl Recorded, after: &impl Recorded, progress: Progress<'_>) {
    for entry in after.rollouts() {
        let is_new = !before.rollouts().iter().any(|known| known.plan_id == entry.plan_id);
        if is_new && let Some(took) = took(entry.started_at, entry.finished_at) {
            metrics.rollout_ended(&entry.outcome, took);
        }
    }
    let tasks = progress.plan.iter().flat_map(|plan| &plan.tasks);
    for task in tasks.filter(|task| is_over(task) && !progress.over_before.contains(&task.id)) {
        if let Some(took) = took(task.started_at, task.finished_at) {
            metrics.task_ended(&task.type_, &format!("{:?}", task.state), took);
        }
    }
}

fn is_over(task: &TaskRecord) -> bool {
    matches!(task.state, TaskState::Complete | TaskState::Failed | TaskState::Skipped)
}

/// None where it is not known; nothing where a clock was set back.
fn took(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> Option<Duration> {
    Some((to? - from?).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::Format;

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
    fn what_ended_between_two_statuses_is_counted_once_with_its_time() {
        let metrics = Metrics::default();
        let ended = |plan: &str, outcome: &str| json!({"planID": plan, "outcome": outcome, "startedAt": "2030-01-01T12:00:00Z", "finishedAt": "2030-01-01T12:05:00Z"});
        let before = fleet("Running", &json!([ended("p0", "Complete")]));
        let after = fleet("Complete", &json!([ended("p0", "Complete"), ended("p1", "Aborted")]));
        let none = NodeDeploymentStatus::default();
        for (from, to) in [(&none, &before), (&before, &before), (&before, &after)] {
            let plan = |status: &NodeDeploymentStatus| status.plan.as_ref().map(|plan| plan.parse().unwrap());
            let over_before = plan(from).as_ref().map(tasks_over).unwrap_or_default();
            count(&metrics, from, to, Progress { plan: plan(to).as_ref(), over_before: &over_before });
        }
        let text = metrics.text(Format::Prometheus, true, &[]);
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
