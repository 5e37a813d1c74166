//! What a status that was written says has ended since the one before it, for counting: tasks, and plans of fleets.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::api::{HistoryEntry, NodeDeploymentStatus, RawPlan, StatefulNodeStatus};
use crate::engine::{Plan, TaskRecord, TaskState};
use crate::metrics::Metrics;

/// A status with a plan.
pub trait Recorded {
    /// The plan, if there is one.
    fn plan(&self) -> Option<&RawPlan>;
    /// The rollouts that ended.
    fn rollouts(&self) -> &[HistoryEntry];
}

impl Recorded for NodeDeploymentStatus {
    fn plan(&self) -> Option<&RawPlan> {
        self.plan.as_ref()
    }

    fn rollouts(&self) -> &[HistoryEntry] {
        &self.history
    }
}

impl Recorded for StatefulNodeStatus {
    fn plan(&self) -> Option<&RawPlan> {
        self.plan.as_ref()
    }

    fn rollouts(&self) -> &[HistoryEntry] {
        &[]
    }
}

/// Counts what ended between two statuses.
pub fn count(metrics: &Metrics, before: &impl Recorded, after: &impl Recorded) {
    for entry in after.rollouts() {
        let is_new = !before.rollouts().iter().any(|known| known.plan_id == entry.plan_id);
        if is_new && let Some(took) = took(entry.started_at, entry.finished_at) {
            metrics.rollout_ended(&entry.outcome, took);
        }
    }
    if before.plan() == after.plan() {
        return;
    }
    let plan = |status: Option<&RawPlan>| status.and_then(|plan| plan.parse().ok());
    let (Some(new), old): (Option<Plan>, Option<Plan>) = (plan(after.plan()), plan(before.plan())) else {
        return;
    };
    let was_over = |task: &TaskRecord| {
        let mut known = old.iter().flat_map(|old| &old.tasks);
        known.any(|known| known.id == task.id && is_over(known))
    };
    for task in new.tasks.iter().filter(|task| is_over(task) && !was_over(task)) {
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
        count(&metrics, &NodeDeploymentStatus::default(), &before);
        count(&metrics, &before, &before);
        count(&metrics, &before, &after);
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
