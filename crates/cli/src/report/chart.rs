//! A plan, and the plans of the nodes that it moved, as bars over time: when each task of each node started, and how
//! long it took, from the times in the plans.

use chrono::{DateTime, TimeDelta, Utc};

use super::{PlanReport, Seen};
use windlass_core::api::conditions::{self, READY};
use windlass_engine::TaskState;
use windlass_kube_port::observed::ObservedNode;

/// The width of a chart, in the unit of bars.
pub const WIDTH: i64 = 1_000;
/// The shortest bar, in the same unit, so that tasks without duration are visible.
const LEAST: i64 = 4;

/// The shortest span of a chart, in seconds.
const SHORTEST: i64 = 5;

/// Bars over time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chart {
    /// Its start.
    pub from: DateTime<Utc>,
    /// Its end: now, or when the last task ended.
    pub to: DateTime<Utc>,
    /// The fleet's plan first, then nodes, in the order in which they were moved.
    pub rows: Vec<Row>,
    /// How many nodes are left out: the earliest.
    pub hidden: usize,
}

/// The tasks of one plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The fleet or the node.
    pub name: String,
    /// The tasks that have started.
    pub bars: Vec<Bar>,
}

/// A task.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bar {
    /// Its type.
    pub task: String,
    /// The task's hook; empty if it has none.
    pub hook: String,
    pub state: TaskState,
    /// When it started.
    pub began: DateTime<Utc>,
    /// Its duration so far.
    pub took: TimeDelta,
    /// The start of the bar, of [`WIDTH`].
    pub start: i64,
    /// The length of the bar, of [`WIDTH`].
    pub length: i64,
}

/// The chart of a fleet's plan, with at most `rows` nodes; `None` without a plan.
#[must_use]
pub fn of_fleet(seen: &Seen, plan: Option<&PlanReport>, rows: usize, now: DateTime<Utc>) -> Option<Chart> {
    let plan = plan?;
    let until = plan.finished_at.unwrap_or(now);
    let since = plan.started_at;
    // A cheap test for moved nodes, before parsing plans: not at rest, or Ready since the plan began.
    let mut moved: Vec<(DateTime<Utc>, &ObservedNode)> = seen
        .nodes
        .iter()
        .filter_map(|node| Some((moved_at(node, now)?, node.as_ref())))
        .filter(|(at, _)| *at >= since)
        .collect();
    // The latest ones are the current ones.
    moved.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.meta.name.cmp(&b.1.meta.name)));
    let mut plans: Vec<(&str, PlanReport)> = Vec::new();
    let mut hidden = 0;
    for (_, node) in moved {
        if plans.len() == rows {
            hidden += 1;
            continue;
        }
        let own = node.status.plan.as_ref().and_then(PlanReport::of);
        let own = own.filter(|own| own.started_at >= since && own.started_at <= until);
        plans.extend(own.map(|own| (node.meta.name.as_str(), own)));
    }
    plans.sort_by(|a, b| a.1.started_at.cmp(&b.1.started_at).then_with(|| a.0.cmp(b.0)));
    let last = plans.iter().filter_map(|(_, plan)| plan.finished_at).max();
    let to = if plan.finished_at.is_some() { last.map_or(until, |last| last.max(until)) } else { now };
    let axis = Axis { from: since, to: to.max(since + TimeDelta::seconds(SHORTEST)) };
    let rows = std::iter::once((seen.fleet.meta.name.as_str(), plan));
    let rows = rows.chain(plans.iter().map(|(name, plan)| (*name, plan)));
    let rows = rows.map(|(name, plan)| axis.row(name, plan)).collect();
    Some(Chart { from: axis.from, to: axis.to, rows, hidden })
}

/// The chart of a plan alone.
#[must_use]
pub fn of_plan(name: &str, plan: &PlanReport, now: DateTime<Utc>) -> Chart {
    let (from, to) = (plan.started_at, plan.finished_at.unwrap_or(now));
    let axis = Axis { from, to: to.max(from + TimeDelta::seconds(SHORTEST)) };
    Chart { from: axis.from, to: axis.to, rows: vec![axis.row(name, plan)], hidden: 0 }
}

/// When a node last moved: now, if it is moving; else when it became Ready.
fn moved_at(node: &ObservedNode, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let status = &node.status;
    if status.plan.as_ref()?.may_be_active() {
        return Some(now);
    }
    conditions::find(&status.conditions, READY).map(|ready| ready.last_transition_time)
}

struct Axis {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
}

impl Axis {
    fn place(&self, at: DateTime<Utc>) -> i64 {
        let whole = (self.to - self.from).num_milliseconds().max(1);
        ((at - self.from).num_milliseconds() * WIDTH / whole).clamp(0, WIDTH)
    }

    fn row(&self, name: &str, plan: &PlanReport) -> Row {
        let bar = |task: &super::TaskReport| {
            let began = task.started_at?;
            let ended = task.finished_at.unwrap_or(self.to).max(began);
            let start = self.place(began).min(WIDTH - LEAST);
            Some(Bar {
                task: task.type_.clone(),
                hook: task.hook.clone(),
                state: task.state,
                began,
                took: ended - began,
                start,
                length: (self.place(ended) - start).max(LEAST),
            })
        };
        Row { name: name.to_owned(), bars: plan.tasks.iter().filter_map(bar).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{fleet, nodes, seen};
    use super::*;

    fn at(time: &str) -> DateTime<Utc> {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    fn with_plans() -> Seen {
        let (mut fleet, mut nodes) = (fleet(), nodes());
        fleet["status"]["plan"] = json!({"id": "p", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active",
            "startedAt": "2026-01-01T04:00:00Z", "tasks": [
            {"id": "p-0", "type": "update-node-specs", "state": "Complete", "startedAt": "2026-01-01T04:00:00Z",
             "finishedAt": "2026-01-01T04:02:00Z"},
            {"id": "p-1", "type": "await-spec-update", "state": "Running", "startedAt": "2026-01-01T04:02:00Z"},
            {"id": "p-2", "type": "mark-ready", "state": "Pending"}]});
        let plan = |state: &str, began: &str, task: Value| {
            json!({"id": "n", "recipe": "NodeUpdate", "targetHash": "v1:a", "state": state,
                "startedAt": began, "tasks": [task]})
        };
        let done = json!({"id": "n-0", "type": "replace-pod", "state": "Complete",
            "startedAt": "2026-01-01T04:01:00Z", "finishedAt": "2026-01-01T04:02:00Z"});
        let now = json!({"id": "n-0", "type": "replace-pod", "state": "Running", "startedAt": "2026-01-01T04:03:00Z"});
        nodes[0]["status"]["plan"] = plan("Complete", "2026-01-01T04:01:00Z", done.clone());
        nodes[0]["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "NodeReady",
            "lastTransitionTime": "2026-01-01T04:02:00Z"}]);
        nodes[1]["status"]["plan"] = plan("Active", "2026-01-01T04:03:00Z", now);
        // One that was moved long before.
        nodes[2]["status"]["plan"] = plan("Complete", "2025-12-31T00:00:00Z", done);
        nodes[2]["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "NodeReady",
            "lastTransitionTime": "2025-12-31T04:02:00Z"}]);
        seen(&fleet, &nodes)
    }

    fn chart(rows: usize) -> Chart {
        let seen = with_plans();
        let plan = seen.fleet.status.plan.as_ref().and_then(PlanReport::of);
        of_fleet(&seen, plan.as_ref(), rows, at("04:04:00")).unwrap()
    }

    #[test]
    fn bars_are_placed_by_the_task_times() {
        let chart = chart(10);
        assert_eq!((chart.from, chart.to, chart.hidden), (at("04:00:00"), at("04:04:00"), 0));
        let bars = |row: &Row| row.bars.iter().map(|b| (b.start, b.length, b.state)).collect::<Vec<_>>();
        let rows: Vec<_> = chart.rows.iter().map(|row| (row.name.as_str(), bars(row))).collect();
        assert_eq!(
            rows,
            [
                ("db", vec![(0, 500, TaskState::Complete), (500, 500, TaskState::Running)]),
                ("db-0", vec![(250, 250, TaskState::Complete)]),
                ("db-1", vec![(750, 250, TaskState::Running)]),
            ]
        );
    }

    #[test]
    fn limited_rows_show_the_active_nodes() {
        let chart = chart(1);
        let names: Vec<&str> = chart.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names, chart.hidden), (vec!["db", "db-1"], 1));
    }

    #[test]
    fn chart_is_absent_without_a_plan() {
        let seen = with_plans();
        assert_eq!(of_fleet(&seen, None, 10, at("04:04:00")), None);
    }
}
