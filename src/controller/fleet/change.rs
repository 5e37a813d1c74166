//! How a fleet's plans end and begin, each in one status write.

use super::act::StatusChange;
use super::context::Fleet;
use crate::api::ids::field;
use crate::api::{Ending, NodeDeploymentStatus, RawPlan, Reason, RevisionName, RolloutHash, SetName, Stage};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::engine::{self, Plan, PlanId, PlanSeed, PlanState};
use crate::planner::fleet::Start;
use crate::planner::fleet::failed::fail;
use crate::planner::fleet::hooks::{self, HookContext};
use crate::planner::fleet::sets::{stage, status as set_status};
use crate::planner::fleet::status::{begin, complete, end, record_request, reject, rollout_target_of, short};
use crate::planner::fleet::verdicts::why_stalled;
use crate::planner::fleet::{Cause, FleetDecision, FleetFacts, RolloutTarget, SetRollout, Strategy};

/// How the stored plan ends, and the reason for its history entry.
type End = (Ending, &'static str);

impl Fleet<'_> {
    /// Ends a stored plan that cannot be carried out.
    pub(super) fn end_stored(&self, facts: &FleetFacts, mut plan: Plan) -> StatusChange {
        let mut status = (*self.scope.fleet.status).clone();
        if let Some(rollout) = status.rollout.as_ref().filter(|_| plan.recipe.is_empty()) {
            plan.recipe.clone_from(&rollout.recipe);
            plan.target_hash.clone_from(&rollout.target_hash);
        }
        fail(&mut status, facts, &plan, "Unreadable", self.now);
        let event = Event::warning(Reason::RolloutFailed, &plan.id, &plan.failure);
        StatusChange::of_plan(status, Some(plan), vec![event])
    }

    /// Ends and starts plans in one write, and runs no task. `None` if traffic has to move back first.
    pub(super) async fn change_plan(
        &self,
        facts: &FleetFacts,
        plan: Option<Plan>,
        decision: FleetDecision,
        entrant: Option<SetName>,
    ) -> Result<Option<StatusChange>, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        // The written status has the hash that is requested now, not the one that was requested before.
        status.requested_rollout_hash = facts.requested.to_string();
        let (ending, start) = match decision {
            FleetDecision::Resume(start) => return self.resume(facts, plan.as_ref(), &start).map(Some),
            FleetDecision::Start(start) => (None, Some(start)),
            FleetDecision::Supersede(start) => (Some((Ending::Superseded, "NewTarget")), Some(start)),
            FleetDecision::CompleteAndStart(start) => (Some((Ending::Complete, "")), Some(start)),
            FleetDecision::RollBack(start) => {
                (Some((Ending::RolledBack, why_back(facts, plan.as_ref()))), Some(start))
            }
            FleetDecision::CancelAfterFailure => {
                (Some((Ending::RolledBack, why_back(facts, plan.as_ref()))), None)
            }
            FleetDecision::CancelToCurrent => (Some((Ending::Superseded, "BackToCompleted")), None),
            FleetDecision::Abort => (Some((Ending::Aborted, Reason::AbortRequested.as_ref())), None),
            FleetDecision::ScaledToZero => (Some((Ending::Superseded, "ScaledToZero")), None),
            FleetDecision::Keep => (None, None),
        };
        let mut events: Vec<Event> = Vec::new();
        let mut shown = plan.clone();
        if let (Some(old), Some(ending)) = (&plan, ending) {
            if !self.prepare_to_end(&mut status, facts, old, ending.0).await? {
                return Ok(None);
            }
            let (ended, event) = self.end_plan(&mut status, facts, old.clone(), ending, start.as_ref());
            shown = Some(ended);
            events.extend(event);
        }
        // A rollout that lost its plan also gives up its set, unless the next plan continues with that set.
        let goes_on = start.as_ref().is_some_and(|start| facts.same_set(start).is_some());
        if facts.rollout.now.cause().is_some() && !goes_on && !plan.as_ref().is_some_and(Plan::is_active) {
            set_status::give_up(&mut status, facts, self.now);
        }
        if let Some(start) = &start {
            let before = plan.as_ref().map(|plan| plan.id.clone());
            let context = HookContext {
                cause: Some(start.cause),
                own: start.rollout_target == RolloutTarget::Own,
                creates_set: start.strategy.creates_set(),
                is_way_back: matches!(ending, Some((Ending::RolledBack, _))),
                ..HookContext::default()
            };
            let plan = self.plan_for(start, before.as_ref(), context.owing(plan.as_ref()))?;
            begin(&mut status, facts, start, &plan, self.revision_of(&start.target).as_ref(), self.now);
            if let Some(entrant) = entrant.filter(|_| start.strategy.creates_set()) {
                set_status::begin(&mut status, facts, start.strategy, &entrant);
            }
            if !matches!(ending, Some((Ending::Superseded | Ending::RolledBack, _))) {
                events.push(started(&plan, start));
            }
            shown = Some(plan);
        } else {
            status.rollout = None;
        }
        Ok(Some(StatusChange::of_plan(status, shown, events)))
    }

    /// Does what has to be done before a plan may end: deletes its Jobs, and moves traffic back if a promotion is given
    /// up. Returns true if all of that is done.
    async fn prepare_to_end(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        old: &Plan,
        ending: Ending,
    ) -> Result<bool, ReconcileError> {
        self.delete_jobs(old).await?;
        let rollout = traffic_moved(facts).filter(|_| ending != Ending::Complete);
        let Some(rollout) = rollout else { return Ok(true) };
        if !self.move_back(rollout).await? {
            return Ok(false);
        }
        set_status::moved_back(status, self.now);
        Ok(true)
    }

    /// Records the end of a plan that a decision ends early. Returns the ended plan and the event.
    fn end_plan(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        mut old: Plan,
        (ending, reason): End,
        start: Option<&Start>,
    ) -> (Plan, Option<Event>) {
        match ending {
            Ending::Aborted => drop(engine::abort(&mut old, self.now)),
            Ending::Complete => {
                old.state = PlanState::Complete;
                old.finished_at = Some(self.now);
            }
            _ => drop(engine::supersede(&mut old, self.now)),
        }
        // The request that ends this rollout is recorded with it, and not with one that follows.
        if start.is_none() || facts.is_aborted(&old) {
            record_request(status, facts);
        }
        end(status, &old, ending, reason, self.now);
        let event = ended(status, facts, &old, ending, start);
        if start.is_none_or(|start| facts.same_set(start).is_none()) {
            set_status::give_up(status, facts, self.now);
        }
        (old, event)
    }

    /// Starts another plan for a promotion whose plan has failed: the same recipe and target, the same nodes and the
    /// same halt height. The promotion still cannot be rolled back.
    fn resume(
        &self,
        facts: &FleetFacts,
        failed: Option<&Plan>,
        start: &Start,
    ) -> Result<StatusChange, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        let before = failed.map(|plan| &plan.id);
        let context = HookContext {
            cause: Some(start.cause),
            creates_set: true,
            is_past_return: true,
            ..HookContext::default()
        };
        let plan = self.plan_for(start, before, context.owing(failed))?;
        status.plan = Some(RawPlan::of(&plan));
        if let Some(rollout) = status.rollout.as_mut() {
            start.cause.as_ref().clone_into(&mut rollout.cause);
            rollout.last_progress_at = self.now;
        }
        record_request(&mut status, facts);
        let event = started(&plan, start);
        Ok(StatusChange::of_plan(status, Some(plan), vec![event]))
    }

    fn revision_of(&self, hash: &RolloutHash) -> Option<RevisionName> {
        RevisionName::recorded(self.scope.revisions().remove(hash)?.meta.name.as_str())
    }

    /// A new plan for a rollout.
    fn plan_for(
        &self,
        start: &Start,
        before: Option<&PlanId>,
        context: HookContext,
    ) -> Result<Plan, ReconcileError> {
        let recipe = self.cx.registry.recipe(start.strategy.recipe());
        let recipe = recipe.map_err(|e| ReconcileError::Plan(e.to_string()))?;
        Ok(self.desired_hooks(context).in_recipe(recipe).plan(PlanSeed {
            uid: &self.scope.fleet.meta.uid,
            target_hash: start.target.as_str(),
            now: self.now,
            attempt: 0,
            disambiguator: before.map_or("", PlanId::as_str),
        }))
    }

    /// Ends a plan whose completed tasks no longer hold, and starts another one to the same target.
    pub(super) fn begin_again(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        old: &Plan,
        reason: &str,
    ) -> Result<Plan, ReconcileError> {
        let rollout_target = rollout_target_of(&self.scope.fleet.status);
        end(status, old, Ending::Superseded, reason, self.now);
        let set = SetRollout::of(status);
        let of_recipe =
            Strategy::of_recipe(&old.recipe).filter(|strategy| !strategy.creates_set()).unwrap_or_default();
        let start = Start {
            rollout_target,
            target: RolloutHash::recorded_or_lost(old.target_hash.as_str()),
            cause: Cause::ChildDrift,
            strategy: set.as_ref().map_or(of_recipe, |set| set.strategy),
        };
        // Read before `begin` replaces the rollout below.
        let cause = status.rollout.as_ref().and_then(|r| r.cause.parse().ok()).or(Some(start.cause));
        let context = HookContext::of(status).map_or(
            HookContext { cause, creates_set: start.strategy.creates_set(), ..HookContext::default() },
            |context| HookContext { cause, ..context },
        );
        let next = self.plan_for(&start, Some(&old.id), context.owing(Some(old)))?;
        let Some(set) = set else {
            let cause = status.rollout.as_ref().map(|r| r.cause.clone()).unwrap_or_default();
            begin(status, facts, &start, &next, self.revision_of(&start.target).as_ref(), self.now);
            if let Some(rollout) = status.rollout.as_mut().filter(|_| !cause.is_empty()) {
                rollout.cause = cause;
            }
            return Ok(next);
        };
        // The set of nodes is kept. A rollout that can no longer be rolled back stays in its stage.
        status.plan = Some(RawPlan::of(&next));
        if let Some(rollout) = status.rollout.as_mut().filter(|_| set.is_revocable()) {
            rollout.stage = set.strategy.first_stage();
        }
        Ok(next)
    }

    /// Updates the stage of a rollout that makes a set from the progress of its plan. Irreversible tasks run only once
    /// the status has their stage.
    pub(super) fn move_on(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        plan: &Plan,
    ) -> Option<Event> {
        let rollout = SetRollout::of(status)?;
        if rollout.stage == Stage::Promoting && stage::has_promoted(plan) {
            return Some(self.promoted(status, facts, &rollout, plan));
        }
        if rollout.stage == Stage::Promoting && stage::has_switched(plan) {
            // AfterPromotion hooks are still to come. The event is sent once, now or when they are done.
            return Some(moved(&rollout, plan));
        }
        let next = stage::stage_of(plan, rollout.stage, rollout.strategy);
        if next == Stage::Promoting && rollout.is_revocable() {
            // Later tasks wait until the status has this stage.
            if facts.may_pass_no_return(&rollout) {
                set_status::pass_no_return(status, facts);
            }
        } else if let Some(rollout) = status.rollout.as_mut() {
            rollout.stage = next;
        }
        None
    }

    fn promoted(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        rollout: &SetRollout,
        plan: &Plan,
    ) -> Event {
        set_status::switched(status, facts, self.now);
        moved(rollout, plan)
    }

    /// Records the end of a plan whose tasks have completed or failed. Returns the events.
    pub(super) fn plan_ended(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        plan: &Plan,
    ) -> Vec<Event> {
        if plan.state != PlanState::Complete {
            fail(status, facts, plan, &plan.failure, self.now);
            return vec![Event::warning(Reason::RolloutFailed, &plan.id, &plan.failure)];
        }
        let mut events = Vec::new();
        let rollout_target = rollout_target_of(&self.scope.fleet.status);
        end(status, plan, Ending::Complete, "", self.now);
        if let Some(rollout) = SetRollout::of(status) {
            if rollout.stage != Stage::Retiring {
                events.push(self.promoted(status, facts, &rollout, plan));
            }
            status.rollout = None;
        } else {
            complete(status, &rollout_target);
            if rollout_target == RolloutTarget::Revision(facts.requested.clone()) {
                field(facts.spec.build_id.as_ref()).clone_into(&mut status.active_build_id);
            }
        }
        events.push(completed(facts, plan));
        events
    }
}

/// The rollout, if it is in the stage Promoting. A plan ends early in this stage only after the switch, so its traffic
/// has moved.
fn traffic_moved(facts: &FleetFacts) -> Option<&SetRollout> {
    facts.rollout.now.set().filter(|rollout| rollout.stage == Stage::Promoting)
}

fn moved(rollout: &SetRollout, plan: &Plan) -> Event {
    let (set, before) = (&rollout.entrant, rollout.incumbent_text());
    let note = format!("set {set} is active at {} and replaces set {before}", short(&rollout.target));
    Event::normal(Reason::Promoted, &plan.id, note)
}

/// The part of an event's note that says that traffic has moved back; empty if it had not moved.
fn back_again(facts: &FleetFacts) -> String {
    traffic_moved(facts)
        .map(|rollout| format!("; traffic moved back to set {}", rollout.incumbent_text()))
        .unwrap_or_default()
}

/// True if a hook of the rollout with this plan has failed, and that rolls it back.
fn is_rolled_back_by_hook(facts: &FleetFacts, plan: &Plan) -> bool {
    let target = RolloutHash::recorded_or_lost(plan.target_hash.as_str());
    hooks::rolls_back(facts, &RolloutTarget::Revision(target))
}

/// The history reason of a rollback.
fn why_back(facts: &FleetFacts, plan: Option<&Plan>) -> &'static str {
    match plan {
        Some(plan) if facts.is_aborted(plan) => Reason::AbortRequested.as_ref(),
        Some(plan) if is_rolled_back_by_hook(facts, plan) => Reason::HookFailed.as_ref(),
        _ => Reason::Stalled.as_ref(),
    }
}

fn started(plan: &Plan, start: &Start) -> Event {
    let note = format!("{} to {} ({})", plan.recipe, short(&start.target), start.cause.as_ref());
    Event::normal(Reason::RolloutStarted, &plan.id, note)
}

fn completed(facts: &FleetFacts, plan: &Plan) -> Event {
    let note =
        format!("the rollout to {} is complete on {} nodes", short(&plan.target_hash), facts.spec.replicas);
    Event::normal(Reason::RolloutComplete, &plan.id, note)
}

fn ended(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    old: &Plan,
    ending: Ending,
    start: Option<&Start>,
) -> Option<Event> {
    let from = short(&old.target_hash);
    match (ending, start) {
        (Ending::Superseded, Some(start)) => {
            let (to, why) = (short(&start.target), start.cause.as_ref());
            let back = back_again(facts);
            let note = format!("the rollout to {from} is superseded by one to {to} ({why}){back}");
            Some(Event::normal(Reason::RolloutSuperseded, &old.id, note))
        }
        (Ending::Superseded, None) if facts.rollout.now.set().is_some() && facts.spec.replicas > 0 => {
            let to = facts.record.last_completed.as_ref().map(short).unwrap_or_default();
            let note = format!(
                "the rollout to {from} is superseded: {to}, which is still active, is the desired \
                revision again"
            );
            Some(Event::normal(Reason::RolloutSuperseded, &old.id, note))
        }
        (Ending::Complete, _) => Some(completed(facts, old)),
        (Ending::Aborted, _) => {
            // Nothing is wrong with the revision that serves.
            let keeps = facts.record.last_completed.is_some()
                && facts.rollout.now.cause().is_some_and(Cause::only_creates);
            if !keeps {
                reject(status, facts, old, Ending::Aborted);
            }
            let nodes = if facts.rollout.now.set().is_some() {
                "its new nodes are deleted"
            } else {
                "nodes keep their current revisions"
            };
            let note = format!("the rollout to {from} was aborted{}; {nodes}", back_again(facts));
            Some(Event::warning(Reason::RolloutAborted, &old.id, note))
        }
        (Ending::RolledBack, _) => {
            let by_hook = hooks::failure(facts).filter(|_| is_rolled_back_by_hook(facts, old));
            let (what, why) = match by_hook {
                _ if facts.is_aborted(old) => ("was aborted", "a user requested it".to_owned()),
                Some(failure) => ("failed at a hook", failure),
                None => ("stalled", why_stalled(status, facts, old.finished_at.unwrap_or_default())),
            };
            reject(status, facts, old, Ending::RolledBack);
            let to = facts.record.last_completed.as_ref().map(short).unwrap_or_default();
            let back = back_again(facts);
            let note = format!("the rollout to {from} {what} and is rolled back to {to}{back}: {why}");
            if let Some(rejected) = status.rejected.as_mut() {
                rejected.message.clone_from(&why);
            }
            if let Some(entry) = status.history.last_mut() {
                let said = [why, std::mem::take(&mut entry.message)];
                entry.message = said.iter().filter(|s| !s.is_empty()).cloned().collect::<Vec<_>>().join("; ");
            }
            Some(Event::warning(Reason::RolledBack, &old.id, note))
        }
        _ => None,
    }
}
