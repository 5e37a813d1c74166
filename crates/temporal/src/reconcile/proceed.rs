//! A reconcile that starts and ends no plan: it advances the plan and maintains the versions.

use std::time::Duration;

use chrono::{DateTime, Utc};
use windlass_core::api::RawPlan;
use windlass_core::api::at_hook::hook_of;
use windlass_core::api::names::ANNOTATION_SKIP;
use windlass_engine::{Plan, control};
use windlass_kube_port::{ClusterError, Event};

use super::state::Reconcile;
use super::{IMMEDIATELY, RESYNC};
use crate::api::{Reason, WorkerDeploymentStatus};
use crate::children::Children;
use crate::planner::decide::AnnotationRequests;
use crate::planner::evacuate;
use crate::planner::{Decision, PlanKind, TemporalState};
use crate::port::BuildId;

/// Requeue while a version's state changed recently.
const ACTIVE_RESYNC: Duration = Duration::from_secs(5);
/// Requeue until it is known whether the API server accepts the target.
const UNCHECKED: Duration = Duration::from_secs(5);
/// How long a change counts as recent.
const RECENT: chrono::TimeDelta = chrono::TimeDelta::minutes(2);

impl Reconcile<'_> {
    /// Advances the active plan, if any, and maintains the versions.
    pub(super) async fn proceed(
        mut self,
        plan: Option<Plan>,
        decision: Decision,
        requests: &AnnotationRequests,
    ) -> Result<Duration, ClusterError> {
        let mut status = self.facts.status.clone();
        let mut plan = plan;
        let active = plan.as_ref().is_some_and(Plan::is_active);
        if let Decision::Refuse { message, .. } = &decision {
            let cause = format!("{}/{}", self.facts.target.hash, self.facts.generation);
            self.record_event(Event::warning(Reason::VersionLimitReached, cause, message.clone()));
        }
        if let Some(plan) = plan.as_mut().filter(|plan| plan.is_active()) {
            self.skip(plan);
            let tried_again = requests.retried_plan() == Some(plan.id.as_str())
                && (control::try_again(plan)
                    || (!evacuate::holds_rollouts(plan) && control::restart_stalled(plan, self.now)));
            if tried_again {
                status.spent_retry.clone_from(&requests.retry);
            }
            if tried_again || self.pass_over(plan) || self.follow_hooks(plan) {
                status.plan = Some(RawPlan::of(plan));
                // Persist it before another task runs.
                let shown = plan.clone();
                self.finish(status, Some(&shown), &decision, &[]).await?;
                return Ok(IMMEDIATELY);
            }
        }
        self.warn_of_stale_promotion();
        self.count_pollers(plan.as_ref()).await;
        let (forgotten, pending) = self.maintain_versions(active, plan.as_ref()).await;
        let unchecked = self.facts.unchecked.as_ref().map(|_| UNCHECKED);
        let pending = [pending, unchecked, self.facts.secrets.settles_in].into_iter().flatten().min();
        let active = plan.as_mut().filter(|plan| plan.is_active());
        let active = active.map(|plan| (PlanKind::of(plan), plan));
        if !matches!(active, Some((PlanKind::Rollout, _))) {
            self.tidy().await;
        }
        let next = match active {
            Some((PlanKind::Evacuation, plan)) => self.advance(plan, &mut status).await,
            Some((PlanKind::Rollout, plan))
                if plan.target_hash == self.facts.target.hash && self.is_accepted =>
            {
                self.restore_ramp(plan).await;
                self.advance(plan, &mut status).await
            }
            // An obsolete plan does nothing until it is superseded.
            Some((PlanKind::Rollout, _)) | None => None,
        };
        status.update_revision = Some(Children::target_revision(&self.facts));
        self.report_stall(plan.as_ref());
        self.report_hook(plan.as_ref());
        let requeue_after = self.requeue_after(&status, plan.as_ref(), pending, next);
        self.finish(status, plan.as_ref(), &decision, &forgotten).await?;
        Ok(requeue_after)
    }

    /// Removes what no rollout needs: a ramp, and old revisions.
    async fn tidy(&self) {
        self.clear_stray_ramp().await;
        // Without Temporal's list, it is unknown which versions exist.
        if self.facts.described().is_some()
            && let Err(error) = self.children.prune(&self.facts).await
        {
            tracing::warn!(name = self.facts.name, %error, "could not delete unused revisions");
        }
    }

    fn skip(&self, plan: &mut Plan) {
        let Some(task) = self.read.annotation(ANNOTATION_SKIP) else { return };
        if !task.starts_with(plan.id.as_str()) {
            return;
        }
        if evacuate::holds_rollouts(plan) {
            let note = format!(
                "task {task} cannot be skipped while its batch runs: abort the evacuation to stop it"
            );
            return self.record_event(Event::warning(Reason::SkipRefused, task, note));
        }
        let is_promotion = plan.tasks.iter().any(|record| record.id == task && record.type_ == "set-current");
        if is_promotion && self.facts.current() != Some(&self.facts.target.build) {
            let note = format!(
                "task {task} cannot be skipped: {} is not the current version in Temporal yet",
                self.facts.target.build
            );
            return self.record_event(Event::warning(Reason::SkipRefused, task, note));
        }
        if let Err(refused) = control::skip(plan, task, &self.cx.registry, self.now) {
            let is_over = matches!(refused, control::SkipRefused::TaskOver { .. });
            if !is_over {
                self.record_event(Event::warning(Reason::SkipRefused, task, refused.to_string()));
            }
        }
    }

    fn warn_of_stale_promotion(&self) {
        let (Some(promoted), target) = (&self.facts.spec.force_promote, &self.facts.target) else { return };
        let is_spent = self.facts.status.spent_force_promote.as_ref() == Some(promoted)
            || self.facts.status.last_completed_rollout_hash.as_ref() == Some(promoted)
            || self.facts.current().map(BuildId::as_str) == Some(promoted.as_str());
        if *promoted != target.hash && promoted != target.build.as_str() && !is_spent {
            let note = format!(
                "spec.forcePromote is {promoted}, but the target is {} ({}): Windlass ignores it. Set it to the target, or remove it",
                target.hash, target.build
            );
            self.record_event(Event::warning(Reason::StaleForcePromote, promoted.clone(), note));
        }
    }

    fn report_stall(&self, plan: Option<&Plan>) {
        let stalled = plan.and_then(|plan| windlass_engine::stalled(plan, self.now));
        // Hooks have their own time-out.
        let Some(task) = stalled.filter(|task| hook_of(task).is_none()) else { return };
        let note = format!("task {} makes no progress: {}", task.type_, task.message);
        let reason = match plan.map(PlanKind::of) {
            Some(PlanKind::Evacuation) => Reason::EvacuationStalled,
            Some(PlanKind::Rollout) | None => Reason::RolloutStalled,
        };
        self.record_event(Event::warning(reason, task.id.clone(), note));
    }

    fn requeue_after(
        &self,
        status: &WorkerDeploymentStatus,
        plan: Option<&Plan>,
        pending: Option<Duration>,
        next: Option<Duration>,
    ) -> Duration {
        let jitter = Duration::from_millis(self.cx.jitter(&self.facts.uid, 10_000));
        let is_lost = matches!(self.facts.temporal, TemporalState::Lost { .. });
        if is_lost {
            let since = status.temporal_lost_at.map_or(0, |at| (self.now - at).num_seconds().max(0));
            let wait = Duration::from_secs((since as u64 / 4).clamp(3, 30));
            return self.retry_after.map_or(wait, |after| after.max(wait));
        }
        if let Some(next) = next {
            let waits_for_somebody = plan.and_then(Plan::current_task).is_some_and(|task| {
                task.type_ == "await-promote" || task.state == windlass_engine::TaskState::Failed
            });
            return if waits_for_somebody { RESYNC + jitter } else { next.min(RESYNC + jitter) };
        }
        if let Some(pending) = pending {
            return pending.min(RESYNC + jitter);
        }
        let changed =
            |since: Option<DateTime<Utc>>| since.is_some_and(|at| at <= self.now && self.now - at < RECENT);
        let is_lively = status.versions.iter().any(|version| changed(version.since));
        let wanted = if is_lively { ACTIVE_RESYNC } else { RESYNC + jitter };
        let dues = self.facts.versions.values().filter_map(|v| crate::planner::sunset::due(&self.facts, v));
        let soonest = dues.flat_map(|due| [due.scale_down, due.delete]).filter(|at| *at > self.now).min();
        let left = soonest.and_then(|at| (at - self.now).to_std().ok());
        left.map_or(wanted, |left| wanted.min(left.max(IMMEDIATELY)))
    }
}
