//! Ended tasks and plans as spans. A rollout is a trace. The tasks of the fleet and the plans of its nodes are children
//! of the rollout's span, and the tasks of a node are children of its plan's span.

use chrono::{DateTime, Utc};

use super::Context;
use super::ended::Ended;
use crate::api::{Ending, HistoryEntry, NodeDeploymentStatus};
use crate::engine::{TaskRecord, TaskState};
use crate::traces::{Span, SpanId, TraceId};
use windlass_kube_port::Kind;
use windlass_kube_port::observed::Meta;

/// The spans of the plans and tasks that ended.
pub fn of(cx: &Context, kind: Kind, meta: &Meta, ended: &Ended<'_>) -> Vec<Span> {
    let of_fleet = kind != Kind::StatefulNode;
    let fleet = if of_fleet { None } else { cx.fleet_of(meta) };
    let rollout = |began: Option<DateTime<Utc>>| {
        let status = &fleet.as_ref()?.status;
        rollout_of(status, began?)
    };
    let object = if of_fleet { "windlass.fleet" } else { "windlass.node" };
    let about = || {
        let mut about = vec![("k8s.namespace.name", meta.namespace.clone()), (object, meta.name.clone())];
        about.extend(fleet.as_ref().map(|fleet| ("windlass.fleet", fleet.meta.name.clone())));
        about
    };
    let mut spans = Vec::new();
    for entry in &ended.plans {
        let (Some(began), Some(ended)) = (entry.started_at, entry.finished_at) else { continue };
        let part_of = rollout(Some(began));
        let mut span = Span {
            trace: TraceId::of(part_of.as_deref().unwrap_or(&entry.plan_id)),
            id: SpanId::of(&[&entry.plan_id]),
            parent: part_of.map(|plan| SpanId::of(&[&plan])),
            name: if of_fleet {
                format!("rollout {}", entry.recipe)
            } else {
                format!("plan {}", entry.recipe)
            },
            began,
            ended,
            attributes: about(),
            failure: failure(entry),
        };
        span.attributes.extend([
            ("windlass.plan", entry.plan_id.clone()),
            ("windlass.from_hash", entry.from_hash.clone()),
            ("windlass.target_hash", entry.target_hash.clone()),
            ("windlass.outcome", entry.outcome.clone()),
            ("windlass.reason", entry.reason.clone()),
        ]);
        spans.push(span);
    }
    let Some(plan) = ended.plan else { return spans };
    let part_of = rollout(Some(plan.started_at));
    let trace = TraceId::of(part_of.as_deref().unwrap_or(plan.id.as_str()));
    for task in &ended.tasks {
        let (Some(began), Some(ended)) = (task.started_at, task.finished_at) else { continue };
        let mut attributes = about();
        attributes.extend([("windlass.plan", plan.id.to_string()), ("windlass.task", task.id.clone())]);
        attributes.push(("windlass.outcome", format!("{:?}", task.state)));
        if let Some(hook) = task.params["hook"].as_str() {
            attributes.push(("windlass.hook", hook.to_owned()));
        }
        spans.push(Span {
            trace,
            // A failed task may be retried under the same ID.
            id: SpanId::of(&[&task.id, &ended.timestamp_micros().to_string()]),
            parent: Some(SpanId::of(&[plan.id.as_str()])),
            name: format!("task {}", task.type_),
            began,
            ended,
            attributes,
            failure: failed(task),
        });
    }
    spans
}

/// The ID of the fleet's plan that was active at this time. A node's plan that began then is part of that rollout.
fn rollout_of(status: &NodeDeploymentStatus, at: DateTime<Utc>) -> Option<String> {
    let over = status.history.iter().rev();
    let over = over.map(|entry| (entry.plan_id.clone(), entry.started_at, entry.finished_at));
    let now = status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let now = now.map(|plan| (plan.id.into(), Some(plan.started_at), plan.finished_at));
    let holds = |(_, began, ended): &(String, Option<DateTime<Utc>>, Option<DateTime<Utc>>)| {
        began.is_some_and(|began| began <= at) && ended.is_none_or(|ended| at <= ended)
    };
    now.into_iter().chain(over).find(holds).map(|(id, ..)| id)
}

fn failure(entry: &HistoryEntry) -> Option<String> {
    let is_failure = matches!(entry.ending(), Some(Ending::Failed | Ending::RolledBack | Ending::Aborted));
    is_failure.then(|| format!("{}: {}", entry.outcome, entry.reason))
}

fn failed(task: &TaskRecord) -> Option<String> {
    (task.state == TaskState::Failed).then(|| task.message.clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_plan_span_belongs_to_the_rollout_active_at_its_start() {
        let at = |minute: u32| format!("2030-01-01T12:{minute:02}:00Z");
        let entry = |plan: &str, from: u32, to: u32| json!({"planID": plan, "startedAt": at(from), "finishedAt": at(to)});
        let status: NodeDeploymentStatus = serde_json::from_value(json!({
            "history": [entry("first", 0, 10), entry("second", 20, 30)],
            "plan": {"id": "third", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active", "startedAt": at(40), "tasks": []},
        }))
        .unwrap();
        let of = |minute: u32| rollout_of(&status, at(minute).parse().unwrap());
        assert_eq!(of(5).as_deref(), Some("first"));
        assert_eq!(of(30).as_deref(), Some("second"));
        assert_eq!(of(50).as_deref(), Some("third"));
        assert_eq!(of(15), None, "between two it is one of none");
    }

    #[test]
    fn span_ids_are_deterministic_per_plan() {
        assert_eq!(TraceId::of("495ff12537"), TraceId::of("495ff12537"));
        assert_ne!(TraceId::of("495ff12537"), TraceId::of("495ff12538"));
        assert_ne!(SpanId::of(&["a", "b"]), SpanId::of(&["a"]));
    }
}
