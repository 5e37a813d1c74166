//! Hooks in a fleet's plans: which hooks a plan has, whether they can be carried out, and what follows from a failure.

use super::act::StatusChange;
use super::context::Fleet;
use crate::api::names::ANNOTATION_RETRY;
use crate::api::{HookPoint, HookRetry, RawPlan, Reason, Rollout, TaskType};
use crate::apply::dry_runs::REJECTED_RECHECK_INTERVAL;
use crate::apply::traffic;
use crate::clock::monotonic;
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::controller::hooks::{has_hooks, has_moved, pass_over, rollout_hashes};
use crate::engine::{self, Advance, Plan, PlanState, TaskRecord, TaskState};
use crate::hooks::Values;
use crate::observe::restart::retried_plan;
use crate::planner::fleet::hooks::{self, AtHook, HookContext, NewNodes};
use crate::planner::fleet::{Blocker, FleetFacts, SetRollout, WAITS_TO_BE_RESUMED};
use crate::planner::hooks::{HookPlacement, has_begun_at, is_of_list, point_of, scaled_up_to};
use crate::planner::node::decide::recipes::GROW_CLAIMS;
use crate::tasks::hooks::{Awaited, HookScope, JobOwner, Unfit, check_all, delete_jobs};
use windlass_kube_port::{Kind, Part, Target};

impl Fleet<'_> {
    /// The hooks that belong into a plan of this context.
    pub(super) fn desired_hooks(&self, context: HookContext) -> HookPlacement<'_> {
        let hooks = &self.scope.spec.update_strategy.hooks;
        if hooks.is_empty() {
            return HookPlacement::default();
        }
        let facts = self.scope.facts();
        HookPlacement {
            hooks,
            points: context.points(),
            stops: hooks::stops(&facts),
            nodes: Some(facts.spec.replicas),
        }
    }

    /// Brings the tasks that have not begun in line with the list of hooks. Returns true if the plan changed.
    pub(super) fn follow_hooks(&self, plan: &mut Plan) -> bool {
        let is_without =
            self.scope.spec.update_strategy.hooks.is_empty() && !plan.tasks.iter().any(is_of_list);
        if is_without || !plan.is_active() {
            return false;
        }
        let Some(context) = HookContext::of(&self.scope.fleet.status) else { return false };
        let facts = self.scope.facts();
        let of_scale_up = match facts.record.last_completed {
            Some(_) => facts.adds_nodes(),
            None => has_begun_at(plan, HookPoint::AfterFirstCreation) && !facts.missing().is_empty(),
        };
        let new_nodes = NewNodes { of_scale_up, ..NewNodes::default() };
        let context = HookContext { new_nodes, ..context }.owing(Some(plan));
        let Ok(recipe) = self.cx.registry.recipe(&plan.recipe) else { return false };
        let mut wanted = self.desired_hooks(context);
        wanted.nodes = wanted.nodes.max(scaled_up_to(plan));
        wanted.too_long_for(recipe).is_none() && wanted.bring_to(plan, &recipe.tasks)
    }

    /// Retries failed hooks if a person asks for it. Resets the fleet's own hook in this plan, and returns all retried
    /// hooks for the status, in which the nodes find theirs.
    pub(super) fn obey_retry(&self, plan: Option<&mut Plan>, facts: &FleetFacts) -> Option<HookRetry> {
        let (meta, status) = (&self.scope.fleet.meta, &self.scope.fleet.status);
        let asked = meta.annotation(ANNOTATION_RETRY).filter(|_| facts.requests.retry.is_some())?;
        let named = retried_plan(asked);
        let current = status.plan.as_ref().and_then(RawPlan::id);
        let is_of = |at: &AtHook| at.task_id.rsplit_once('-').is_some_and(|(plan, _)| plan == named);
        // Without a plan of its own, the fleet is named by the plan of any of these nodes.
        let is_idle = !plan.as_ref().is_some_and(|plan| plan.is_active());
        let names_all = current.as_ref().is_some_and(|current| *current == *named)
            || (is_idle && hooks::failures(facts).any(|p| is_of(p.at)));
        let is_named = |at: &AtHook| names_all || is_of(at);
        let tasks: Vec<String> =
            hooks::failures(facts).filter(|p| is_named(p.at)).map(|p| p.at.tried()).collect();
        if tasks.is_empty() {
            return None;
        }
        if let Some(plan) = plan
            && let Some(task) = engine::held_by(plan)
            && tasks.contains(&hooks::tried(task))
        {
            engine::try_again(plan);
        }
        Some(HookRetry { request: asked.to_owned(), tasks })
    }

    /// The status with the changed plan.
    pub(super) fn store_plan(&self, plan: Option<Plan>, retried: Option<HookRetry>) -> StatusChange {
        let mut status = (*self.scope.fleet.status).clone();
        if let Some(plan) = plan.as_ref().filter(|plan| plan.is_active()) {
            status.plan = Some(RawPlan::of(plan));
        }
        if retried.is_some() {
            status.hook_retry = retried;
        }
        StatusChange::of_plan(status, plan, Vec::new())
    }

    /// Why the hooks cannot be carried out, if so.
    pub(super) async fn check_hooks(&self) -> Option<Blocker> {
        let spec = self.scope.spec.clone();
        let hooks = &spec.update_strategy.hooks;
        if hooks.is_empty() {
            return None;
        }
        let new_nodes = NewNodes { of_fleet: true, of_scale_up: true };
        let context = HookContext { new_nodes, ..HookContext::default() };
        let facts = self.scope.facts();
        if let Ok(recipe) = self.cx.registry.recipe(facts.spec.strategy.recipe())
            && let Some(sentence) = self.desired_hooks(context).too_long_for(recipe)
        {
            return Some(Blocker::Spec(sentence));
        }
        // Expressions are parsed and Jobs are checked by the API server once per generation. A refusal is checked again
        // later.
        let meta = &self.scope.fleet.meta;
        let content = format!("hooks of {} at {}", meta.uid, meta.generation);
        let verdicts = &self.scope.caches.probes.verdicts;
        if let Some((asked, verdict)) = verdicts.get(&content)
            && (verdict.is_ok() || monotonic().duration_since(asked) < REJECTED_RECHECK_INTERVAL)
        {
            return verdict.err().map(Blocker::Spec);
        }
        let rules = &self.cx.hook_rules;
        let verdict = match check_all(self.scope.cluster.as_ref(), &self.job_owner(), hooks, rules).await {
            Ok(()) => Ok(()),
            Err(Unfit::Refused(sentence)) => Err(sentence),
            Err(Unfit::Unknown { sentence, is_transient }) => {
                return Some(if is_transient {
                    Blocker::Unanswered(sentence)
                } else {
                    Blocker::Spec(sentence)
                });
            }
        };
        verdicts.put(&content, (monotonic(), verdict.clone()));
        verdict.err().map(Blocker::Spec)
    }

    pub(super) fn job_owner(&self) -> JobOwner {
        let meta = &self.scope.fleet.meta;
        JobOwner::itself(self.scope.kind(), &meta.namespace, &meta.name, &meta.uid)
    }

    /// Deletes the Jobs of a plan that is about to end early.
    pub(super) async fn delete_jobs(&self, plan: &Plan) -> Result<(), ReconcileError> {
        if !plan.is_active() || !has_hooks(plan) {
            return Ok(());
        }
        let deleted = &self.cx.deleted_jobs;
        let deleted = delete_jobs(self.scope.cluster.as_ref(), &self.job_owner(), plan, deleted).await;
        deleted.map_err(ReconcileError::Children)
    }

    /// The scope of this plan's hooks; `None` if it has none.
    pub(super) fn hook_scope(&self, plan: &Plan) -> Option<HookScope> {
        if !has_hooks(plan) {
            return None;
        }
        let (fleet, spec) = (&self.scope.fleet, &self.scope.spec);
        let rollout = fleet.status.rollout.as_ref();
        let (from, _) = rollout_hashes(&fleet.status);
        let set = rollout.and_then(Rollout::entrant).unwrap_or_else(|| self.scope.facts().set.clone());
        let image = crate::revision::main_image(&spec.template.spec).unwrap_or_default();
        let values = Values {
            fleet: Some(fleet.meta.name.clone()),
            namespace: Some(fleet.meta.namespace.clone()),
            image: Some(image.to_owned()),
            from_hash: Some(from),
            target_hash: Some(plan.target_hash.clone()),
            set: Some(set.into()),
            ..Values::default()
        };
        let paused = spec.paused.then(|| WAITS_TO_BE_RESUMED.to_owned());
        let task = plan.current_task();
        let at_gate = task.and_then(|task| self.hook_at_gate(task));
        let hold = paused.or(at_gate);
        let of_new_nodes = task.and_then(point_of).is_some_and(|at| HookPoint::OF_NEW_NODES.contains(&at));
        let awaits = of_new_nodes.then(|| self.scope.facts().waits_for_nodes()).flatten();
        let awaits = awaits.map(|sentence| Awaited { sentence, is_timed: false });
        let scope = self.cx.hook_scope(self.job_owner(), Some(spec.clone()), &[&fleet.meta], values);
        Some(HookScope { hold, awaits, ..scope })
    }

    /// Why a hook that comes before the first node moves, or before traffic does, does not start now: it waits with them. One
    /// that has started goes on, and a person is asked at any time.
    fn hook_at_gate(&self, task: &TaskRecord) -> Option<String> {
        let is_before = matches!(point_of(task), Some(HookPoint::BeforeRollout | HookPoint::BeforePromotion));
        let may_start = task.state == TaskState::Pending || TaskType::AwaitApproval.is(task);
        let facts = self.scope.facts();
        let waits = is_before && may_start && !facts.has_urgent(&self.scope.rollout_target);
        facts.rollout.gate.sentence().filter(|_| waits)
    }

    /// True if the plan does not go on: its next task is a hook that waits for the gate.
    pub(super) fn is_before_gate(&self, plan: &Plan) -> bool {
        let next = plan.current_task().filter(|task| !TaskType::AwaitApproval.is(task));
        next.is_some_and(|task| self.hook_at_gate(task).is_some())
    }

    /// Skips a failed hook whose policy is Continue. Returns the event.
    pub(super) fn pass_over(&self, plan: &mut Plan) -> Option<Event> {
        pass_over(plan, &self.scope.spec.update_strategy.hooks, None)
    }

    /// Corrects the result of an in-place plan that completed: its nodes may have changed while what comes after the
    /// last
    /// step ran, such as hooks at `AfterRollout` or tasks of an embedder's own. The plan is superseded if a node has
    /// lost
    /// its grant, and keeps waiting until the nodes have converged again.
    pub(super) fn unless_disrupted(&self, plan: &mut Plan, advance: Advance) -> Advance {
        // Claims grow whether nodes are available or not.
        let is_in_place = self.scope.set_rollout().is_none() && plan.recipe != GROW_CLAIMS;
        if advance != Advance::Ended || plan.state != PlanState::Complete || !is_in_place {
            return advance;
        }
        let facts = self.scope.facts();
        if let Some(child) = facts.wanted().find(|c| !facts.is_granted(c, &self.scope.rollout_target)) {
            plan.state = PlanState::Superseded;
            plan.finished_at = Some(self.now);
            let message = format!("{} no longer matches its grant", child.name);
            return Advance::Invalidated { reason: crate::tasks::CHILD_CHANGED.to_owned(), message };
        }
        if facts.is_converged(&self.scope.rollout_target) {
            return advance;
        }
        plan.state = PlanState::Active;
        plan.finished_at = None;
        // The completion of a task that must not run again is stored first, once.
        if self.has_stored_tasks_of(plan) {
            Advance::Waiting { recheck_after: None }
        } else {
            Advance::Checkpoint
        }
    }

    /// True if each task of a plan is stored in the state that it has.
    fn has_stored_tasks_of(&self, plan: &Plan) -> bool {
        let states = |plan: &Plan| plan.tasks.iter().map(|task| task.state).collect::<Vec<_>>();
        let stored = self.scope.fleet.status.plan.as_ref().and_then(|raw| raw.parse().ok());
        stored.is_some_and(|stored| states(&stored) == states(plan))
    }

    pub(super) fn has_moved_at_hook(&self, plan: &Plan) -> bool {
        has_moved(plan, self.scope.fleet.status.plan.as_ref())
    }

    /// Moves traffic back to the set that served before, in one write. Returns true if traffic is there, or if the
    /// fleet
    /// has no Service by its spec.
    pub(super) async fn move_back(&self, rollout: &SetRollout) -> Result<bool, ReconcileError> {
        if self.scope.spec.service.is_none() {
            return Ok(true);
        }
        let service = self.scope.view.services.get(&self.scope.fleet.meta.key());
        // A Service that belongs to something else is not touched, and the owner of a Service that does not exist is
        // not known yet. The new set is not given up before that is clear: its nodes may carry the traffic.
        let Some(service) = service.filter(|s| self.scope.owns(&s.meta)) else { return Ok(false) };
        // If the status has lost the incumbent set, it still has the active set.
        let incumbent = rollout.incumbent.clone().unwrap_or_else(|| self.scope.facts().set.clone());
        if traffic::is_at(&service, &incumbent) {
            return Ok(true);
        }
        let ops = traffic::move_to(&service, &incumbent);
        let target = Target::of(Kind::Service, &service.meta);
        match self.scope.cluster.patch(target, Part::Main, ops).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(ReconcileError::Children(error)),
        }
    }

    /// Records events about failed hooks and about hooks that wait for a person, once for each attempt.
    pub(super) fn record_hook_events(&self, facts: &FleetFacts) {
        for place in hooks::failures(facts) {
            let note = format!("{} failed: {}", place.name(), place.at.message);
            self.warn(Reason::HookFailed, place.at.tried(), note);
        }
        for place in hooks::asking(facts) {
            let id = &place.at.task_id;
            let note = format!(
                "{} is waiting for approval: windlass approve {}, or annotate windlass.dev/approve={id}",
                place.name(),
                self.scope.command_argument()
            );
            self.record(&Event::normal(Reason::ApprovalRequested, place.at.tried(), note));
        }
    }
}
