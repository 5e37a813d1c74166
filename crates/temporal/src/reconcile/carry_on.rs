//! What a look does that changes no plan: the plan goes on, and versions get what they need.

use std::time::Duration;

use chrono::{DateTime, Utc};
use windlass_core::api::RawPlan;
use windlass_core::api::at_hook::hook_of;
use windlass_core::api::names::ANNOTATION_SKIP;
use windlass_engine::{Plan, control};

use super::look::Look;
use super::{AT_ONCE, REST};
use crate::api::WorkerDeploymentStatus;
use crate::children::Children;
use crate::cluster::ClusterError;
use crate::events::Event;
use crate::planner::decide::Asked;
use crate::planner::{Decision, Temporal as Said};
use crate::port::BuildId;

/// How soon it is when a version's state changed lately.
const LIVELY: Duration = Duration::from_secs(5);
/// For so long that is lately.
const LATELY: chrono::TimeDelta = chrono::TimeDelta::minutes(2);

impl Look<'_> {
    /// Carries an active plan out, and beside it does what versions need.
    pub(super) async fn carry_on(
        mut self,
        plan: Option<Plan>,
        decision: Decision,
        asked: &Asked,
    ) -> Result<Duration, ClusterError> {
        let mut status = self.facts.status.clone();
        let mut plan = plan;
        let active = plan.as_ref().is_some_and(Plan::is_active);
        if let Decision::Refuse { message, .. } = &decision {
            let cause = format!("{}/{}", self.facts.target.hash, self.facts.generation);
            self.tell(Event::warning("VersionLimitReached", cause, message.clone()));
        }
        if let Some(plan) = plan.as_mut().filter(|plan| plan.is_active()) {
            self.skip(plan);
            let tried_again = asked.retried_plan() == Some(plan.id.as_str()) && control::try_again(plan);
            if tried_again {
                status.spent_retry.clone_from(&asked.retry);
            }
            if tried_again || self.pass_over(plan) || self.follow_hooks(plan) {
                status.plan = Some(RawPlan::of(plan));
                // It is written before anything is started anew.
                let shown = plan.clone();
                self.finish(status, Some(&shown), &decision, &[]).await?;
                return Ok(AT_ONCE);
            }
        }
        self.warn_of_stale_promotion();
        self.ask_for_pollers(active).await;
        let (forgotten, pending) = self.tend(active, plan.as_ref()).await;
        let mut next = None;
        if let Some(plan) = plan.as_mut().filter(|plan| plan.is_active()) {
            // A plan to what is not wanted any more waits for its end, and does nothing.
            if plan.target_hash == self.facts.target.hash && self.are_hooks_fine {
                self.keep_ramp(plan).await;
                next = self.advance(plan, &mut status).await;
            }
        } else {
            self.clear_stray_ramp().await;
            // Which versions there are only Temporal says.
            if self.facts.described().is_some()
                && let Err(error) = self.children.prune(&self.facts).await
            {
                tracing::warn!(name = self.facts.name, %error, "revisions that nobody needs could not be deleted");
            }
        }
        status.update_revision = Some(Children::target_revision(&self.facts));
        self.tell_of_stall(plan.as_ref());
        self.tell_of_hook(plan.as_ref());
        let rest = self.rest(&status, plan.as_ref(), pending, next);
        self.finish(status, plan.as_ref(), &decision, &forgotten).await?;
        Ok(rest)
    }

    fn skip(&self, plan: &mut Plan) {
        let Some(task) = self.read.annotation(ANNOTATION_SKIP) else { return };
        if !task.starts_with(&plan.id) {
            return;
        }
        if let Err(refused) = control::skip(plan, task, &self.cx.registry, self.now) {
            let is_over = matches!(refused, control::SkipRefused::TaskOver { .. });
            if !is_over {
                self.tell(Event::warning("SkipRefused", task, refused.to_string()));
            }
        }
    }

    fn warn_of_stale_promotion(&self) {
        let (Some(asked), target) = (&self.facts.spec.force_promote, &self.facts.target) else { return };
        let is_spent = self.facts.status.spent_force_promote.as_ref() == Some(asked)
            || self.facts.status.last_completed_rollout_hash.as_ref() == Some(asked)
            || self.facts.current().map(BuildId::as_str) == Some(asked.as_str());
        if *asked != target.hash && asked != target.build.as_str() && !is_spent {
            let note = format!(
                "spec.forcePromote is {asked}, and what is wanted is {} ({})",
                target.hash, target.build
            );
            self.tell(Event::warning("StaleForcePromote", asked.clone(), note));
        }
    }

    fn tell_of_stall(&self, plan: Option<&Plan>) {
        let stalled = plan.and_then(|plan| windlass_engine::stalled(plan, self.now));
        // A hook has a time-out of its own.
        let Some(task) = stalled.filter(|task| hook_of(task).is_none()) else { return };
        let note = format!("task {} gets no further: {}", task.type_, task.message);
        self.tell(Event::warning("RolloutStalled", task.id.clone(), note));
    }

    fn rest(
        &self,
        status: &WorkerDeploymentStatus,
        plan: Option<&Plan>,
        pending: Option<Duration>,
        next: Option<Duration>,
    ) -> Duration {
        let jitter = Duration::from_millis(self.cx.jitter(&self.facts.uid, 10_000));
        let is_lost = matches!(self.facts.temporal, Said::Lost { .. });
        if is_lost {
            let since = status.temporal_lost_at.map_or(0, |at| (self.now - at).num_seconds().max(0));
            let wait = Duration::from_secs((since as u64 / 4).clamp(3, 30));
            return self.retry_after.map_or(wait, |asked| asked.max(wait));
        }
        if let Some(next) = next {
            let waits_for_somebody = plan.and_then(Plan::current_task).is_some_and(|task| {
                task.type_ == "await-promote" || task.state == windlass_engine::TaskState::Failed
            });
            return if waits_for_somebody { REST + jitter } else { next.min(REST + jitter) };
        }
        if let Some(pending) = pending {
            return pending.min(REST + jitter);
        }
        let changed =
            |since: Option<DateTime<Utc>>| since.is_some_and(|at| at <= self.now && self.now - at < LATELY);
        let is_lively = status.versions.iter().any(|version| changed(version.since));
        let wanted = if is_lively { LIVELY } else { REST + jitter };
        let dues = self.facts.versions.values().filter_map(|v| crate::planner::sunset::due(&self.facts, v));
        let soonest = dues.flat_map(|due| [due.scale_down, due.delete]).filter(|at| *at > self.now).min();
        let left = soonest.and_then(|at| (at - self.now).to_std().ok());
        left.map_or(wanted, |left| wanted.min(left.max(AT_ONCE)))
    }
}
