//! Starts and ends plans: each change is one write, before any task runs.

use std::time::Duration;

use windlass_core::api::{Ending, HistoryEntry, RawPlan, Rejected};
use windlass_engine::{Advance, Env, Plan, PlanState, control, executor};
use windlass_kube_port::{ClusterError, Event};

use super::IMMEDIATELY;
use super::state::Reconcile;
use crate::api::{Reason, WorkerDeploymentStatus};
use crate::children::Children;
use crate::planner::decide::AnnotationRequests;
use crate::planner::evacuate::{self, Evacuation};
use crate::planner::{Decision, PlanKind, begin};
use crate::tasks::workflow_id;

/// Requeue while the hooks of a plan that is due to end cannot be stopped.
const HOOKS_GO_ON: Duration = Duration::from_secs(3);
/// The most workflows of a gate that are terminated.
const GATES: usize = 20;

impl Reconcile<'_> {
    /// Ends the plan, starts one, or both: in one write, before any task runs.
    pub(super) async fn change(
        self,
        plan: Option<Plan>,
        decision: Decision,
        requests: &AnnotationRequests,
    ) -> Result<Duration, ClusterError> {
        let (now, target) = (self.now, self.facts.target.clone());
        let mut status = self.facts.status.clone();
        let mut plan = plan;
        let mut new = None;
        let before = status.current_build_id.clone();
        if let Some(old) = plan.as_ref().filter(|plan| plan.is_active())
            && let Err(error) = self.end_hooks(old).await
        {
            return self.wait_for_hooks(old, &error).await;
        }
        match &decision {
            Decision::Record => {
                self.complete(&mut status);
            }
            Decision::Start(cause) => {
                let why = format!("superseded by the rollout of {}", target.build);
                self.end_evacuation(plan.as_mut(), &mut status, Ending::Superseded, &why).await;
                let last = plan.as_ref().filter(|plan| plan.target_hash == target.hash);
                let attempt = last.map_or(0, |plan| plan.attempt.saturating_add(1));
                let fresh = begin::plan(&self.facts, plan.as_ref(), cause.reason(), attempt, now);
                let from = before.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
                let note = format!("starting rollout {}{from} to {}", fresh.id, target.build);
                self.record_event(Event::normal(Reason::RolloutStarted, &fresh.id, note));
                if let Some(rejected) = status.rejected.take() {
                    let names_it = requests.retried_plan() == Some(rejected.plan_id.as_str());
                    let words = requests.retry.clone().filter(|_| names_it);
                    status.spent_retry = words.or(Some(rejected.plan_id));
                }
                status.cause = Some(cause.reason().to_string());
                new = Some(fresh);
            }
            Decision::Evacuate(evacuation) => {
                let why = "superseded by another evacuation";
                self.end_evacuation(plan.as_mut(), &mut status, Ending::Superseded, why).await;
                new = Some(self.begin_evacuation(evacuation, plan.as_ref(), &mut status, requests));
            }
            Decision::RefuseEvacuation { message } => {
                self.refuse_evacuation(&mut status, requests, message);
            }
            Decision::Abort if evacuate::active(plan.as_ref()).is_some() => {
                self.end_evacuation(plan.as_mut(), &mut status, Ending::Aborted, "aborted on request").await;
            }
            Decision::Supersede | Decision::End => {
                if let Some(old) = plan.as_mut() {
                    self.end_gates(old).await;
                    control::supersede(old, now);
                    let note = format!(
                        "the rollout to {} is superseded: the target is now {} ({})",
                        old.target_hash, target.hash, target.build
                    );
                    self.record_event(Event::normal(Reason::RolloutSuperseded, &old.id, note));
                    self.record(&mut status, old, Ending::Superseded, Reason::Superseded, "");
                }
                if decision == Decision::Supersede {
                    let fresh = begin::plan(&self.facts, plan.as_ref(), Reason::Superseded, 0, now);
                    status.cause = Some(Reason::Superseded.to_string());
                    new = Some(fresh);
                }
            }
            Decision::Abort | Decision::RollBack { .. } => {
                if let Some(old) = plan.as_mut() {
                    self.give_up(&mut status, old, &decision).await;
                }
            }
            Decision::Keep | Decision::Refuse { .. } => {}
        }
        let shown = new.or(plan);
        status.plan = shown.as_ref().map(RawPlan::of).or(status.plan);
        status.update_revision = Some(Children::target_revision(&self.facts));
        self.finish(status, shown.as_ref(), &decision, &[]).await?;
        Ok(IMMEDIATELY)
    }

    /// Keeps a plan that is due to end, because its hooks could not be stopped, and records an event. Windlass still
    /// maintains the versions.
    async fn wait_for_hooks(mut self, old: &Plan, error: &str) -> Result<Duration, ClusterError> {
        let note = format!("rollout {} cannot end yet: {error}", old.id);
        self.record_event(Event::warning(Reason::ApplyFailed, note.clone(), note));
        let (forgotten, _) = self.maintain_versions(true, Some(old)).await;
        self.finish(self.facts.status.clone(), Some(old), &Decision::Keep, &forgotten).await?;
        Ok(HOOKS_GO_ON)
    }

    async fn give_up(&self, status: &mut WorkerDeploymentStatus, old: &mut Plan, decision: &Decision) {
        let build = status.target_build_id.clone().unwrap_or_else(|| self.facts.target.build.clone());
        self.end_gates(old).await;
        let (outcome, reason, message) = if let Decision::RollBack { reason, message } = decision {
            control::supersede(old, self.now);
            (Ending::RolledBack, *reason, message.clone())
        } else {
            control::abort(old, self.now);
            (Ending::Aborted, Reason::Aborted, String::new())
        };
        let (event, note) = if outcome == Ending::RolledBack {
            (Reason::RolledBack, format!("rollout {} to {build} is rolled back: {message}", old.id))
        } else {
            (Reason::RolloutAborted, format!("rollout {} to {build} is aborted on request", old.id))
        };
        self.record_event(Event::warning(event, &old.id, note));
        self.record(status, old, outcome, reason, &message);
        status.rejected = Some(Rejected {
            hash: old.target_hash.clone(),
            build_id: build.to_string(),
            plan_id: old.id.to_string(),
            outcome: outcome.to_string(),
            message,
        });
    }

    pub(super) async fn fail_unreadable_plan(self, sentence: &str) -> Result<Duration, ClusterError> {
        let mut status = self.facts.status.clone();
        let raw = status.plan.clone().unwrap_or_default();
        let failed = raw.failed(&self.facts.uid, sentence, self.now);
        match PlanKind::of(&failed) {
            PlanKind::Rollout => self.fail(&mut status, &failed, &self.facts.target.hash, sentence),
            PlanKind::Evacuation => self.record_evacuation(&mut status, &failed),
        }
        status.plan = Some(RawPlan::of(&failed));
        self.finish(status, Some(&failed), &Decision::Keep, &[]).await?;
        Ok(IMMEDIATELY)
    }

    pub(super) async fn advance(
        &self,
        plan: &mut Plan,
        status: &mut WorkerDeploymentStatus,
    ) -> Option<Duration> {
        let env = self.equip(Env::new().with(self.scope()), plan);
        let patience = i64::from(self.facts.spec.progress_deadline_seconds);
        let advance = executor::advance(plan, &self.cx.registry, &env, self.now, patience).await;
        status.plan = Some(RawPlan::of(plan));
        match advance {
            Advance::Waiting { recheck_after } => recheck_after,
            Advance::Checkpoint | Advance::Held | Advance::Invalidated { .. } => Some(IMMEDIATELY),
            Advance::Ended => {
                if self.was_rerouted(plan) {
                    plan.state = PlanState::Superseded;
                    status.plan = Some(RawPlan::of(plan));
                    let message = "the routing changed before the last hooks completed";
                    self.record(status, plan, Ending::Superseded, Reason::ChildDrift, message);
                } else if PlanKind::of(plan) == PlanKind::Evacuation {
                    self.record_evacuation(status, plan);
                } else if plan.state == PlanState::Complete {
                    let note = format!("{} is the current version", self.facts.target.build);
                    self.record_event(Event::normal(Reason::RolloutComplete, &plan.id, note));
                    self.record(status, plan, Ending::Complete, Reason::RolloutComplete, "");
                    self.complete(status);
                } else {
                    self.fail(status, plan, &plan.target_hash, &plan.failure);
                }
                Some(IMMEDIATELY)
            }
        }
    }

    /// Ends the active plan because the object is being deleted. Hooks that cannot be stopped delay that, unless a
    /// person requested a deletion without waiting.
    pub(crate) async fn end_for_deletion(&mut self) -> Result<(), String> {
        let raw = self.facts.status.plan.as_ref();
        let Some(mut plan) = raw.and_then(|raw| raw.parse().ok()).filter(Plan::is_active) else {
            return Ok(());
        };
        match self.end_hooks(&plan).await {
            Err(error) if self.facts.delete_now => {
                tracing::warn!(name = self.facts.name, %error, "could not stop the hooks of a rollout; ending the rollout anyway");
            }
            ended => ended?,
        }
        let mut status = self.facts.status.clone();
        if PlanKind::of(&plan) == PlanKind::Evacuation {
            let why = "superseded by the deletion of the object";
            self.end_evacuation(Some(&mut plan), &mut status, Ending::Superseded, why).await;
        } else {
            self.end_gates(&plan).await;
            control::supersede(&mut plan, self.now);
            self.record(&mut status, &plan, Ending::Superseded, Reason::Terminating, "");
        }
        status.plan = Some(RawPlan::of(&plan));
        self.facts.status = status;
        Ok(())
    }

    /// Terminates the workflows of a gate whose plan ends: while one runs, its version is not retired. A workflow that
    /// is missed ends at its time-out.
    async fn end_gates(&self, plan: &Plan) {
        let Some(temporal) = &self.temporal else { return };
        let Some(task) = plan.current_task().filter(|task| task.type_ == "run-gate") else { return };
        for index in 0..GATES {
            let id = workflow_id(task, index);
            match temporal.describe_gate(&id).await {
                Ok(crate::port::GateState::Running) => {
                    let reason = "the rollout of this gate has ended";
                    let _ = temporal.end_gate(&id, reason, &self.facts.identity).await;
                }
                Ok(_) => {}
                // There are no more of them.
                Err(_) => return,
            }
        }
    }

    fn complete(&self, status: &mut WorkerDeploymentStatus) {
        status.last_completed_rollout_hash = Some(self.facts.target.hash.clone());
        status.current_revision = Some(Children::target_revision(&self.facts));
        status.rejected = None;
        status.cause = None;
        if self.facts.is_promoted() {
            status.spent_force_promote.clone_from(&self.facts.spec.force_promote);
        }
    }

    /// Records that a plan failed; its target is rejected until a person retries it.
    fn fail(&self, status: &mut WorkerDeploymentStatus, plan: &Plan, hash: &str, why: &str) {
        self.record(status, plan, Ending::Failed, Reason::PlanFailed, why);
        self.record_event(Event::warning(Reason::RolloutFailed, &plan.id, why));
        status.rejected = Some(Rejected {
            hash: hash.to_owned(),
            build_id: self.facts.target.build.to_string(),
            plan_id: plan.id.to_string(),
            outcome: Ending::Failed.to_string(),
            message: why.to_owned(),
        });
    }

    pub(super) fn record(
        &self,
        status: &mut WorkerDeploymentStatus,
        plan: &Plan,
        outcome: Ending,
        reason: Reason,
        message: &str,
    ) {
        let from_hash = match PlanKind::of(plan) {
            PlanKind::Rollout => {
                self.cx.metrics.count_rollout(outcome.as_ref());
                status.last_completed_rollout_hash.clone().unwrap_or_default()
            }
            PlanKind::Evacuation => Evacuation::of(plan).map(|of| of.from.to_string()).unwrap_or_default(),
        };
        let entry = HistoryEntry {
            plan_id: plan.id.to_string(),
            recipe: plan.recipe.clone(),
            from_hash,
            target_hash: plan.target_hash.clone(),
            outcome: outcome.to_string(),
            reason: reason.to_string(),
            message: windlass_engine::sentence::cut(message, 512),
            started_at: Some(plan.started_at),
            finished_at: plan.finished_at.or(Some(self.now)),
        };
        windlass_core::api::status::remember(&mut status.history, entry);
    }
}
