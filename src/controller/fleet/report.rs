//! The last stage: writes the status, records events, and decides when the fleet is requeued.

use std::sync::Arc;
use std::time::Duration;

use super::act::{Acted, StatusChange, Then};
use super::context::Fleet;
use crate::api::conditions::{self, DISRUPTION_BUDGET_READY, UP_TO_DATE};
use crate::api::names::ANNOTATION_RETRY;
use crate::api::{NodeDeploymentStatus, Reason};
use crate::apply::fleet_objects;
use crate::controller::record::Progress;
use crate::controller::save::{Urgency, save};
use crate::controller::{Next, ReconcileError};
use crate::engine::Plan;
use crate::planner::fleet::budget::BudgetProblem;
use crate::planner::fleet::report::{
    Findings, build_id, clear_completed_requests, facts_under, is_kept_from_going, is_news, next_deadline,
};
use crate::planner::fleet::requests::{self, Remark};
use crate::planner::fleet::status::RefreshInput;
use crate::planner::fleet::{Blocker, FleetFacts, budget, refresh, release};
use crate::revision::config;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::ObservedNode;

/// The requeue delay while something is stuck, such as a spec that cannot be carried out: a person may remove the
/// obstacle.
const REQUEUE_INVALID_SPEC: Duration = Duration::from_secs(30);
/// The requeue delay after a transient failure of the API server, and for what no event reports.
const REQUEUE_UNWATCHED: Duration = Duration::from_secs(5);

const TEMPLATE_CHANGED: &str = "the template has changed since: Windlass rolls out the new template next";

impl Fleet<'_> {
    fn findings(&self) -> Findings {
        Findings {
            not_applied: self.report.not_applied.clone(),
            // By each reconcile, also by one that applies nothing: the conditions would change for one write.
            reverted: if self.of_pods.is_none() {
                fleet_objects::reverted_by_admission(&self.scope)
            } else {
                None
            },
            waits_for: self.report.waits_for.clone(),
        }
    }

    /// Writes the status, and records the events that follow from it.
    async fn write(
        &self,
        mut status: NodeDeploymentStatus,
        facts: &FleetFacts,
        plan: Option<&Plan>,
        urgency: Urgency<'_>,
    ) -> Result<Next, ReconcileError> {
        let (meta, spec) = (&self.scope.fleet.meta, &self.scope.spec);
        let facts = facts_under(&status, facts, plan, &self.findings());
        let build_id = build_id(&status, &facts, spec);
        clear_completed_requests(&mut status, spec, meta.annotation(ANNOTATION_RETRY).unwrap_or_default());
        // The promotion of a target ends before another one is rolled out.
        let is_superseded = facts.requested != self.scope.specified();
        let input = RefreshInput {
            name: &meta.name,
            namespace: &meta.namespace,
            generation: meta.generation,
            update_revision: self.report.update_revision.as_ref(),
            build_id: &build_id,
            plan,
            reads_machines: self.scope.view.watches_machines(),
            config_digest: config::digest_in(&spec.template.spec.pod_template),
            next: if is_superseded { Some(TEMPLATE_CHANGED) } else { self.report.pending.as_deref() },
            now: self.now,
        };
        refresh(&mut status, &facts, &input);
        if let Some(found) = &self.report.budget {
            budget::report(&mut status, found.as_ref().copied(), meta.generation, self.now);
        }
        let before = &*self.stored.status;
        let remarks = self.remarks(&status);
        let sentences: Vec<&str> = remarks.iter().map(|remark| remark.sentence.as_str()).collect();
        conditions::add_to_message(&mut status.conditions, UP_TO_DATE, &sentences);
        // Objects that the garbage collector is deleting cannot be retained any more.
        if self.of_pods.is_none() && (!facts.terminating || !meta.collects_first) {
            let release = self.scope.release();
            release::refresh(&mut status, &release);
            if release::can_wait(before, &status, &release) {
                (status.deletion_policy, status.volume_claim_retention) = (None, None);
            }
        }
        // Written at once, so that no event reports it before the status does.
        let said = conditions::find(&before.conditions, UP_TO_DATE).map_or("", |c| &c.message);
        let is_new = is_news(before, &status) || !sentences.iter().all(|sentence| said.contains(sentence));
        let urgency = if is_new { Urgency::Now } else { urgency };
        let progress = Progress { plan, finished_tasks: &self.report.finished_tasks };
        let kind = self.scope.kind();
        let next = match &self.of_pods {
            None => save(self.cx, kind, meta, before, &status, urgency, progress).await?,
            Some(of) => {
                let after = of.status(status.clone(), self);
                let urgency = if of.has_moved(&after.nodes) { Urgency::Now } else { urgency };
                save(self.cx, kind, meta, &*of.stored.status, &after, urgency, progress).await?
            }
        };
        self.record_status_events(&status, &facts, plan);
        self.record_budget_event();
        // An event follows the first write that reported it, so an operator that starts sends none.
        for Remark { sentence, event } in remarks.iter().filter(|remark| !said.contains(&remark.sentence)) {
            if let Some((reason, cause)) = event {
                self.warn(*reason, cause, sentence);
            }
        }
        Ok(next)
    }

    /// What to report about a person's requests, under the status that is about to be written.
    fn remarks(&self, status: &NodeDeploymentStatus) -> Vec<Remark> {
        let Fleet { scope, stored, report, .. } = self;
        // A status that was never written, or is lost, knows no earlier plan and no earlier restart.
        if stored.status.requested_rollout_hash.is_empty() {
            return Vec::new();
        }
        let mut all = requests::remarks(&scope.fleet.meta, &scope.spec, status);
        // Findings that follow from the spec alone are reported with the write that observes the spec: an upgrade of
        // Windlass writes
        // nothing over steady fleets.
        if stored.status.observed_generation == scope.fleet.meta.generation {
            let said = conditions::find(&stored.status.conditions, UP_TO_DATE).map_or("", |c| &c.message);
            let unsaid = requests::of_strategy(&scope.spec);
            all.retain(|remark| said.contains(&remark.sentence) || !unsaid.contains(remark));
        }
        all.extend(report.remarks.iter().filter(|remark| !all.contains(remark)).cloned().collect::<Vec<_>>());
        all
    }

    fn record_status_events(&self, status: &NodeDeploymentStatus, facts: &FleetFacts, plan: Option<&Plan>) {
        let generation = self.scope.fleet.meta.generation;
        let blocker = facts.findings.blocker.as_ref().map(Blocker::to_string);
        for sentence in blocker.iter().chain(&facts.findings.not_applied) {
            self.warn(Reason::InvalidSpec, format!("{generation}/{sentence}"), sentence);
        }
        for overwritten in self.of_pods.iter().flat_map(|of| &of.overwritten) {
            self.warn(
                Reason::StrategyOverwritten,
                format!("{generation}/{}", overwritten.sentence),
                &overwritten.sentence,
            );
        }
        for conflict in &facts.conflicts {
            self.warn(Reason::InvalidSpec, &conflict.message, &conflict.message);
        }
        self.record_hook_events(facts);
        let stalled = conditions::find(&status.conditions, conditions::STALLED)
            .filter(|c| c.reason == Reason::NoProgress.as_ref());
        // A stall after some progress is a new stall and gets its own event.
        let cause = match (&status.rollout, &status.initial_fill) {
            (Some(rollout), _) => plan.map(|plan| format!("{}/{}", plan.id, rollout.last_progress_at)),
            (None, Some(filling)) => Some(format!("initialFill/{}", filling.last_progress_at)),
            (None, None) => None,
        };
        if let Some((condition, cause)) = stalled.zip(cause) {
            self.warn(Reason::RolloutStalled, cause, &condition.message);
        }
    }

    /// Sent once, after the first write that reports the problem.
    fn record_budget_event(&self) {
        let Some(Err(BudgetProblem { reason, message })) = &self.report.budget else { return };
        let said = conditions::find(&self.stored.status.conditions, DISRUPTION_BUDGET_READY);
        if said.is_none_or(|said| said.message != *message) {
            self.warn(*reason, message, message);
        }
    }

    /// When to requeue if no event comes first.
    fn requeue(&self, next: Next, facts: &FleetFacts) -> Next {
        let status = &self.scope.fleet.status;
        let next = next.at(next_deadline(status, facts, self.now), self.now);
        // An error that is returned has a backoff of its own.
        let is_transient =
            self.report.error.is_none() && self.scope.blocker.as_ref().is_some_and(Blocker::is_transient);
        let next =
            if is_transient || self.report.needs_requeue { next.within(REQUEUE_UNWATCHED) } else { next };
        let next = next
            .within_some(self.report.look_again)
            .within_some(self.scope.gate_changes_in(&facts.rollout.gate));
        let in_doubt =
            |n: &Arc<ObservedNode>| self.scope.view.has_pending_outcome(Kind::StatefulNode, &n.meta);
        let is_stuck = self.scope.children().iter().any(in_doubt)
            || is_kept_from_going(status, facts, self.now)
            || facts.findings.blocker.is_some()
            || self.report.not_applied.is_some()
            || matches!(self.report.budget, Some(Err(_)))
            || !facts.conflicts.is_empty();
        if is_stuck { next.within(REQUEUE_INVALID_SPEC) } else { next }
    }
}

impl Acted<'_> {
    pub(super) async fn report(self) -> Result<Next, ReconcileError> {
        let Self { fleet, facts, change } = self;
        let StatusChange { status, plan, urgency, events, then } = change;
        let next = fleet.write(status, &facts, plan.as_ref(), urgency).await?;
        for event in &events {
            fleet.record(event);
        }
        match then {
            // The write itself requeues the fleet.
            Then::AwaitOwnWrite => Ok(next),
            Then::Requeue(after) => {
                let next = fleet.requeue(next.within_some(after), &facts);
                fleet.report.error.map_or(Ok(next), |error| Err(error.beside(next.asked())))
            }
        }
    }
}
