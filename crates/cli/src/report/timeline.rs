//! The history of a fleet, in order of time: events, ended plans, the last plan's tasks, and transitions of
//! conditions. For `windlass logs` and the page.

use chrono::{DateTime, Utc};

use super::SeenStatefulSets;
use super::chain::{Subject, TimelineEntry};
use windlass_core::api::at_hook::message_of;
use windlass_core::api::names::place_of;
use windlass_core::api::{Condition, HistoryEntry, NodeDeploymentStatus, RawPlan};
use windlass_core::planner::fleet::status::short;
use windlass_engine::PlanState;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::ObservedFleet;

/// The history, oldest first, with the events about the fleet and its nodes.
#[must_use]
pub fn of_fleet(fleet: &ObservedFleet, events: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let name = &fleet.meta.name;
    let of_fleet = Subject::of(Kind::NodeDeployment.name(), name);
    let is_of_fleet = |event: &TimelineEntry| {
        let is_node = event.about.kind == Kind::StatefulNode.name();
        event.about == of_fleet || (is_node && place_of(name, &event.about.name).is_some())
    };
    let events = events.into_iter().filter(is_of_fleet).collect();
    let NodeDeploymentStatus { history, plan, conditions, .. } = &*fleet.status;
    of_status(&of_fleet, events, history, plan.as_ref(), conditions)
}

/// The same of a StatefulSetRollout, with the events about it, its StatefulSets and their pods.
#[must_use]
pub fn of_stateful_sets(seen: &SeenStatefulSets, events: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let meta = &seen.seen.fleet.meta;
    let about = Subject::of(Kind::StatefulSetRollout.name(), &meta.name);
    let is_own = |event: &TimelineEntry| match event.about.kind.as_str() {
        "StatefulSet" => seen.sets.iter().any(|set| set.name == event.about.name),
        "Pod" => seen.set_of(&event.about.name).is_some(),
        _ => event.about == about,
    };
    let events = events.into_iter().filter(is_own).collect();
    let NodeDeploymentStatus { history, plan, conditions, .. } = &*seen.seen.fleet.status;
    of_status(&about, events, history, plan.as_ref(), conditions)
}

/// Merges events with the records of a status. `about`: what an event about the object names.
#[must_use]
pub fn of_status(
    about: &Subject,
    events: Vec<TimelineEntry>,
    history: &[HistoryEntry],
    plan: Option<&RawPlan>,
    conditions: &[Condition],
) -> Vec<TimelineEntry> {
    let mut story = events;
    let mut add = |reason: &str, note: String, at: Option<DateTime<Utc>>| {
        let happened = |at| TimelineEntry { about: about.clone(), reason: reason.to_owned(), note, at };
        story.extend(at.map(happened));
    };
    for entry in history {
        let (plan, recipe, target) = (&entry.plan_id, &entry.recipe, short(&entry.target_hash));
        add("PlanBegan", format!("plan {plan} ({recipe}) to {target}"), entry.started_at);
        let why = [entry.reason.as_str(), entry.message.as_str()];
        let why = why.iter().fold(String::new(), |said, why| said + &after(why));
        add("PlanEnded", format!("plan {plan} is {}{why}", entry.outcome), entry.finished_at);
    }
    let parsed = plan.and_then(|plan| plan.parse().ok());
    if let Some(plan) = parsed.as_ref().filter(|plan| plan.state == PlanState::Active) {
        let note = format!("plan {} ({}) to {}", plan.id, plan.recipe, short(&plan.target_hash));
        add("PlanBegan", note, Some(plan.started_at));
    }
    for task in parsed.iter().flat_map(|plan| &plan.tasks) {
        add("TaskBegan", task.type_.clone(), task.started_at);
        let note = format!("{} is {:?}{}", task.type_, task.state, after(&message_of(task)));
        add("TaskEnded", note, task.finished_at);
    }
    for condition in conditions {
        let says = format!("{}={} {}", condition.type_, condition.status, condition.reason);
        // A message may be newer than the transition.
        let message = if condition.message.is_empty() {
            String::new()
        } else {
            format!("; current message: {}", condition.message)
        };
        add("Condition", says + &message, Some(condition.last_transition_time));
    }
    // A stable sort keeps the order of the lists within a moment.
    story.sort_by_key(|happened| happened.at);
    story
}

fn after(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}
