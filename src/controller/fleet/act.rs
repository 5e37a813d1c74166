//! The third stage: carries out the decision, except for the write of the status.

use std::sync::Arc;
use std::time::Duration;

use super::context::Fleet;
use super::decide::{Action, Decided, Stored};
use crate::api::{NodeDeploymentStatus, RawPlan, Reason};
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::apply::{disruption_budget, fleet_children, fleet_objects};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::controller::save::Urgency;
use crate::engine::{self, Advance, Plan};
use crate::planner::fleet::status::{rollout_target_of, short};
use crate::planner::fleet::{Blocker, FleetFacts, SetRollout};
use crate::tasks::keep_whole_at_hook;

/// The result for a plan that is not advanced.
const WAITING: Advance = Advance::Waiting { recheck_after: None };
/// The requeue delay while traffic could not be moved back, and nothing is known that keeps it.
const REQUEUE_TRAFFIC: Duration = Duration::from_secs(1);

/// The fleet after the writes to its child objects and before the write of its status.
#[must_use]
pub(super) struct Acted<'a> {
    pub(super) fleet: Fleet<'a>,
    /// The facts after these writes.
    pub(super) facts: Arc<FleetFacts>,
    pub(super) change: StatusChange,
}

/// The status to write, before the observed state is refreshed in it.
pub(super) struct StatusChange {
    pub(super) status: NodeDeploymentStatus,
    /// The plan that the status is about.
    pub(super) plan: Option<Plan>,
    pub(super) urgency: Urgency<'static>,
    /// Recorded after the status is written.
    pub(super) events: Vec<Event>,
    pub(super) then: Then,
}

/// When the fleet is requeued.
pub(super) enum Then {
    /// When the cache has the written status.
    AwaitOwnWrite,
    /// At the next deadline, and at the latest after this time.
    Requeue(Option<Duration>),
}

impl StatusChange {
    /// A write that changes the stored plan. The reconcile that makes it does nothing else.
    pub(super) fn of_plan(status: NodeDeploymentStatus, plan: Option<Plan>, events: Vec<Event>) -> Self {
        Self { status, plan, urgency: Urgency::Now, events, then: Then::AwaitOwnWrite }
    }
}

impl<'a> Decided<'a> {
    pub(super) async fn act(self) -> Result<Acted<'a>, ReconcileError> {
        let Self { mut fleet, facts, action } = self;
        // A reconcile that only changes the plan applies nothing, and still reports what blocks the rollout.
        // Otherwise the conditions would change for one write.
        let applies_nothing =
            matches!(action, Action::EndStored(_) | Action::ChangePlan { .. } | Action::StorePlan { .. });
        let change = match action {
            Action::EndStored(plan) => fleet.end_stored(&facts, *plan),
            Action::ChangePlan { plan, decision, entrant } => {
                let changed = match fleet.change_plan(&facts, plan, decision, entrant).await {
                    Err(error @ ReconcileError::Children(_)) if !error.is_conflict() => {
                        fleet.note_of_end(error);
                        None
                    }
                    changed => changed?,
                };
                if let Some(change) = changed { change } else { fleet.retry_end_later().await }
            }
            Action::StorePlan { plan, retried } => fleet.store_plan(plan, retried),
            Action::Wait(stored) => {
                let meta = &fleet.scope.fleet.meta;
                if meta.terminating
                    && !meta.collects_first
                    && let Err(error) = fleet_children::retain_of_going(&fleet.scope).await
                {
                    fleet.note(error);
                }
                fleet.advanced(stored, &WAITING)?
            }
            Action::CarryOut(stored) => {
                fleet.apply_outside_plan(stored.plan.as_ref().filter(|plan| plan.is_active())).await;
                let change = fleet.carry_out(stored).await?;
                fleet.delete_replaced_jobs().await?;
                fleet.move_off_drained_machines().await;
                change
            }
        };
        if applies_nothing && let Some(sentence) = fleet_objects::last_taken_service(&fleet.scope) {
            fleet.scope.block(Blocker::Service(sentence));
        }
        Ok(Acted { facts: fleet.scope.facts(), fleet, change })
    }
}

impl Fleet<'_> {
    /// Does the work that is independent of the plan. The steps are also independent of one another: if one fails it is
    /// retried, while the rollout continues and the status reports the observed state.
    async fn apply_outside_plan(&mut self, plan: Option<&Plan>) {
        if let Some(of) = &self.of_pods {
            let pods = of.pods.clone();
            return self.apply_pods(&pods).await;
        }
        let is_active = plan.is_some();
        match fleet_objects::apply_service(&self.scope).await {
            Ok(Some(sentence)) => {
                self.scope.block(Blocker::Service(sentence));
            }
            Ok(None) => {}
            Err(error) => self.note(error),
        }
        match disruption_budget::apply(&self.scope).await {
            Ok(found) => self.report.budget = Some(found.map_or(Ok(()), Err)),
            Err(error) => self.note(error),
        }
        if let Err(error) = fleet_children::apply_at_once(&self.scope).await {
            self.note(error);
        }
        match fleet_children::remove(&self.scope, &self.scope.facts(), is_active).await {
            Ok(removed) => {
                self.report.waits_for = removed.waits_for;
                self.report.needs_requeue = removed.needs_requeue;
            }
            Err(error) => self.note(error),
        }
        match fleet_children::forget_unlabelled(&self.scope, &self.scope.facts()).await {
            Ok(again) => self.look_again(again),
            Err(error) => self.note(error),
        }
        let facts = self.scope.facts();
        let rollout_target = rollout_target_of(&self.scope.fleet.status);
        let of_nodes = (is_active && facts.rollout.now.set().is_none()).then_some(&rollout_target);
        // While a set is halting and no plan is active, no task would ask new nodes to halt. Missing nodes are not
        // recreated then, because they would run past the halt height.
        let is_unasked = !is_active && facts.rollout.now.set().is_some_and(SetRollout::is_halting);
        if !is_unasked && let Err(error) = fleet_children::create_missing(&self.scope, &facts, of_nodes).await
        {
            self.note(error);
        }
        if let Some(plan) = plan {
            if let Err(error) = keep_whole_at_hook(&self.scope, plan).await {
                self.note(ReconcileError::Children(error));
            }
            return;
        }
        if let Err(error) = fleet_children::pin(&self.scope, &facts).await {
            self.note(error);
        }
        if let Err(error) = fleet_objects::prune_revisions(&self.scope).await {
            self.note(error);
        }
    }

    /// Moves pods off machines that are being drained. An update that the plan granted takes room first: it moves the pod,
    /// too.
    async fn move_off_drained_machines(&mut self) {
        match self.scope.move_pods().await {
            Ok(None) => {}
            Ok(Some(_)) => self.look_again(Some(REQUEUE_STALE_PODS)),
            Err(error) => self.note(ReconcileError::Children(error)),
        }
    }

    /// Keeps a plan that is to end, but whose traffic cannot be moved back or whose Jobs cannot be deleted now, and
    /// does all other work: it recreates lost nodes, and it creates the Service once its name is free again.
    async fn retry_end_later(&mut self) -> StatusChange {
        // The plan as stored: a person's requests are obeyed once it is known whether the plan ends.
        let plan = self.stored_plan().ok().flatten();
        self.apply_outside_plan(plan.as_ref().filter(|plan| plan.is_active())).await;
        // It does not move on either: a rollout that is being canceled must not pass the point of no return.
        let status = (*self.scope.fleet.status).clone();
        let urgency = if self.has_news() { Urgency::Now } else { Urgency::Progress("") };
        // A known obstacle ends with an event, or is checked again like any other problem of a fleet. An error has its
        // own backoff.
        let report = &self.report;
        let is_known = self.scope.blocker.is_some() || report.not_applied.is_some() || report.error.is_some();
        let soon = (!is_known).then_some(REQUEUE_TRAFFIC);
        StatusChange { status, plan, urgency, events: Vec::new(), then: Then::Requeue(soon) }
    }

    /// Records why a plan cannot end now.
    fn note_of_end(&mut self, error: ReconcileError) {
        match error.refusal().filter(|_| error.refused_delete().is_none()) {
            // Jobs are only deleted: it is the Service that has to change.
            Some(message) => {
                self.scope.block(Blocker::Service(format!("service: the API server rejects it: {message}")));
            }
            None => self.note(error),
        }
    }

    /// Advances the plan until one of its tasks has to wait.
    async fn carry_out(&self, stored: Stored) -> Result<StatusChange, ReconcileError> {
        let Stored { plan: Some(mut plan), skipped } = stored else { return self.advanced(stored, &WAITING) };
        if !plan.is_active() || self.is_before_gate(&plan) {
            return self.advanced(Stored { plan: Some(plan), skipped }, &WAITING);
        }
        let env = self.cx.env.layer().with(self.scope.clone());
        let env = match self.hook_scope(&plan) {
            Some(hooks) => env.with(hooks).with(self.cx.deleted_jobs.clone()),
            None => env,
        };
        let deadline = self.scope.spec.update_strategy.progress_deadline_seconds;
        let advance = engine::advance(&mut plan, &self.cx.registry, &env, self.now, deadline).await;
        let passed_over = self.pass_over(&mut plan);
        let advance = self.unless_disrupted(&mut plan, advance);
        if matches!(advance, Advance::Invalidated { .. }) {
            self.delete_jobs(&plan).await?;
        }
        let mut change = self.advanced(Stored { plan: Some(plan), skipped }, &advance)?;
        change.events.extend(passed_over);
        Ok(change)
    }

    /// The status that results from advancing the plan.
    fn advanced(&self, stored: Stored, advance: &Advance) -> Result<StatusChange, ReconcileError> {
        let before = &self.scope.fleet.status;
        let mut status = (**before).clone();
        let facts = self.scope.facts();
        let mut events: Vec<Event> = Vec::new();
        let Stored { mut plan, skipped } = stored;
        let (mut urgency, mut after) = (Urgency::Progress(""), None);
        match (advance, &plan) {
            (Advance::Waiting { recheck_after }, Some(plan)) => {
                after = *recheck_after;
                if plan.is_active() {
                    status.plan = Some(RawPlan::of(plan));
                    events.extend(self.move_on(&mut status, &facts, plan));
                }
                if skipped || self.has_moved_at_hook(plan) {
                    urgency = Urgency::Now;
                }
            }
            (Advance::Checkpoint | Advance::Held, Some(plan)) => {
                status.plan = Some(RawPlan::of(plan));
                urgency = Urgency::Now;
                events.extend(self.move_on(&mut status, &facts, plan));
            }
            (Advance::Ended, Some(plan)) => {
                urgency = Urgency::Now;
                events.extend(self.plan_ended(&mut status, &facts, plan));
            }
            (Advance::Invalidated { reason, message }, Some(old)) => {
                urgency = Urgency::Now;
                let to = short(&old.target_hash);
                let note = format!("the plan to {to} is superseded by a new one to {to}: {message}");
                events.push(Event::normal(Reason::RolloutSuperseded, &old.id, note));
                let next = self.begin_again(&mut status, &facts, old, reason)?;
                plan = Some(next);
            }
            (_, None) => {}
        }
        if self.has_news() {
            urgency = Urgency::Now;
        }
        Ok(StatusChange { status, plan, urgency, events, then: Then::Requeue(after) })
    }

    /// True if a new generation or an invalid spec is to be reported, which is more than progress of a plan.
    fn has_news(&self) -> bool {
        let fleet = &self.scope.fleet;
        fleet.status.observed_generation != fleet.meta.generation || self.scope.blocker.is_some()
    }
}
