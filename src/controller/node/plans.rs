//! How a node's plans begin and end, each in one status write.

use chrono::TimeDelta;

use super::change::StatusChange;
use super::context::Node;
use crate::api::{Ending, HistoryEntry, Reason};
use crate::controller::events::Event;
use crate::controller::{Next, ReconcileError};
use crate::engine::{self, Plan, PlanSeed, PlanState, TaskState};
use crate::planner::fleet::status::short;
use crate::planner::hooks::message_of;
use crate::planner::node::decide::{RETRY_SECONDS_MAX, for_removal, is_rolling, owed_hooks, recipes, target};
use crate::planner::node::{NodeDecision, NodeFacts};

/// The first backoff before a failed plan is retried, in seconds. It doubles with each attempt.
const RETRY_SECONDS: i64 = 10;

/// How a plan ended, and the reason.
pub(super) type End = (Ending, String);

/// The ending of a plan whose tasks completed or failed.
pub(super) fn of_outcome(plan: &Plan) -> End {
    match plan.state {
        PlanState::Complete => (Ending::Complete, String::new()),
        _ => (Ending::Failed, plan.failure.clone()),
    }
}

impl Node<'_> {
    pub(super) fn end_unreadable(&self, mut plan: Plan) -> StatusChange {
        plan.retry_at = Some(self.now + TimeDelta::seconds(RETRY_SECONDS));
        let entry = self.entry(&plan, Ending::Failed, "Unreadable");
        let event = Event::warning(Reason::PlanFailed, &plan.id, &plan.failure);
        StatusChange {
            next: Next::on_event().at(plan.retry_at, self.now),
            entries: vec![entry],
            events: vec![event],
            ..StatusChange::of(Some(plan))
        }
    }

    /// Ends and starts plans in one write, and runs no task.
    pub(super) async fn change_plan(
        &self,
        facts: &NodeFacts,
        plan: Option<Plan>,
        decision: NodeDecision,
    ) -> Result<StatusChange, ReconcileError> {
        let mut entries = Vec::new();
        let (recipe, attempt) = match decision {
            NodeDecision::Keep => (None, 0),
            NodeDecision::Start { recipe, attempt } => (Some(recipe), attempt),
            NodeDecision::Supersede { reason, next } => {
                if let Some(old) = &plan {
                    self.delete_jobs(old).await?;
                    entries.push(self.entry(old, Ending::Superseded, reason));
                }
                (next, 0)
            }
        };
        if let Some(recipe) = recipe {
            let plan = self.new_plan(recipe, facts, attempt, plan.as_ref())?;
            return Ok(self.start(plan, entries));
        }
        let ended = plan.map(|mut old| {
            engine::supersede(&mut old, self.now);
            old
        });
        Ok(StatusChange { entries, ..StatusChange::of(ended) })
    }

    /// Ends a plan whose completed tasks no longer hold, and starts the next one.
    pub(super) fn follow(
        &self,
        old: &Plan,
        reason: &str,
        recipe: &str,
    ) -> Result<StatusChange, ReconcileError> {
        let entry = self.entry(old, Ending::Superseded, reason);
        let next = self.new_plan(recipe, &self.facts(), 0, Some(old))?;
        Ok(self.start(next, vec![entry]))
    }

    pub(super) fn end(&self, mut plan: Plan, (ending, reason): End) -> StatusChange {
        if plan.state == PlanState::Failed {
            let doubled = RETRY_SECONDS.saturating_mul(1_i64.checked_shl(plan.attempt.min(16)).unwrap_or(1));
            plan.retry_at = Some(self.now + TimeDelta::seconds(doubled.min(RETRY_SECONDS_MAX)));
        }
        let entry = self.entry(&plan, ending, &reason);
        let mut events = Vec::new();
        match ending {
            Ending::Complete => {
                let note = format!("{} is complete", plan.recipe);
                events.push(Event::normal(Reason::PlanComplete, &plan.id, note));
            }
            Ending::Failed => {
                events.push(Event::warning(Reason::PlanFailed, &plan.id, &plan.failure));
                if let Some(task) = plan.tasks.iter().find(|t| t.state == TaskState::Failed) {
                    let note = format!("{} failed: {}", task.type_, message_of(task));
                    events.push(Event::warning(Reason::TaskFailed, &task.id, note));
                }
            }
            Ending::Superseded | Ending::Aborted | Ending::RolledBack => {}
        }
        let next = Next::on_event().at(plan.retry_at, self.now);
        StatusChange { entries: vec![entry], events, next, ..StatusChange::of(Some(plan)) }
    }

    fn new_plan(
        &self,
        recipe: &str,
        facts: &NodeFacts,
        attempt: u32,
        before: Option<&Plan>,
    ) -> Result<Plan, ReconcileError> {
        let recipe = self.cx.registry.recipe(recipe).map_err(|e| ReconcileError::Plan(e.to_string()))?;
        let mut hooks = self.desired_hooks(&recipe.name, None);
        let owed = before.map(owed_hooks).unwrap_or_default();
        if is_rolling(&recipe.name) {
            hooks.points.extend(&owed);
        }
        let mut plan = hooks.in_recipe(recipe).plan(PlanSeed {
            uid: &self.stored.meta.uid,
            target_hash: target(facts),
            now: self.now,
            attempt,
            disambiguator: before.map_or("", |plan| plan.id.as_str()),
        });
        for_removal(&mut plan, facts.removal_id.as_ref(), &owed);
        Ok(plan)
    }

    fn start(&self, plan: Plan, entries: Vec<HistoryEntry>) -> StatusChange {
        let to = self.move_of(&plan).unwrap_or_else(|| format!("to {}", short(&plan.target_hash)));
        let note = format!("{} {to} ({} tasks)", plan.recipe, plan.tasks.len());
        let events = vec![Event::normal(Reason::PlanStarted, &plan.id, note)];
        StatusChange { entries, events, ..StatusChange::of(Some(plan)) }
    }

    /// The machine that the pod of a plan MoveNode leaves, and why.
    fn move_of(&self, plan: &Plan) -> Option<String> {
        let spec = self.stored.spec.as_ref().ok().filter(|_| plan.recipe == recipes::MOVE_NODE)?;
        let machine = &spec.move_.as_ref()?.node_name;
        Some(format!("off machine {machine}, which is being drained"))
    }

    fn entry(&self, plan: &Plan, ending: Ending, reason: &str) -> HistoryEntry {
        HistoryEntry {
            plan_id: plan.id.to_string(),
            recipe: plan.recipe.clone(),
            from_hash: self.status().pod_template_hash.clone(),
            target_hash: plan.target_hash.clone(),
            outcome: ending.to_string(),
            reason: reason.to_owned(),
            message: self.move_of(plan).unwrap_or_default(),
            started_at: Some(plan.started_at),
            finished_at: Some(self.now),
        }
    }
}
