//! The last stage: writes the status, records events, and decides when the node is requeued.

use super::act::Acted;
use super::change::StatusChange;
use super::context::{Failed, Node};
use crate::api::conditions::{self, NODE_UPDATE_IN_PROGRESS, READY};
use crate::api::names::{ANNOTATION_KUBECTL_RESTART, ANNOTATION_OWNER_UID, argument_of};
use crate::api::status::remember;
use crate::api::{HistoryEntry, NodePhase, Reason, StatefulNodeStatus};
use crate::controller::events::Event;
use crate::controller::hooks::has_moved;
use crate::controller::record::Progress;
use crate::controller::save::{Urgency, save};
use crate::controller::{Next, ReconcileError};
use crate::engine::Plan;
use crate::observe::restart::effective_restart;
use crate::planner::fleet::requests::{Remark, ignored_restart};
use crate::planner::node::decide::removal_of;
use crate::planner::node::status::{StatusInput, status};
use windlass_kube_port::Kind;

impl<'a> Acted<'a> {
    pub(super) async fn report(self) -> Result<Next, Box<Failed<'a>>> {
        let Self { node, change, error } = self;
        let StatusChange { plan, entries, invalid, is_progress, events, of_fleet, next } = change;
        let generation = node.stored.meta.generation;
        let after = node.compute(generation, plan.as_ref(), &entries, invalid.as_deref());
        let urgency = match plan.as_ref().filter(|_| is_progress) {
            Some(plan) => node.urgency(plan, &after),
            None => Urgency::Now,
        };
        let saved = match node.write(&after, plan.as_ref(), invalid.as_deref(), urgency).await {
            Ok(saved) => saved,
            Err(error) => return Err(node.failed(error)),
        };
        for event in &events {
            node.record(event);
        }
        if let Some((event, fleet)) = of_fleet.zip(node.of_fleet.fleet.as_ref()) {
            node.cx.events.record(Kind::NodeDeployment, &fleet.meta, &event);
        }
        match error {
            Some(error) => Err(node.failed_after_save(error.beside(saved.or(next).asked()))),
            None => Ok(saved.or(next)),
        }
    }
}

impl Failed<'_> {
    /// Reports what was observed in spite of the error, because the waves of the fleet depend on it. If no decision was
    /// possible, the status contains the reason.
    pub(super) async fn report(self: Box<Self>) -> Result<Next, ReconcileError> {
        let Self { node, error, is_reported } = *self;
        // A second write would be computed from the stored plan, conflict with the first write, and hide this error.
        if !is_reported && !error.is_conflict() && !matches!(error, ReconcileError::Persist(_)) {
            let undecided = matches!(error, ReconcileError::Observe(_) | ReconcileError::Check(_));
            let invalid = node.denial(&error).filter(|_| undecided);
            let plan = node.stored_plan().ok().flatten();
            let after =
                node.compute(node.decided_generation(plan.as_ref()), plan.as_ref(), &[], invalid.as_deref());
            node.write(&after, plan.as_ref(), invalid.as_deref(), Urgency::Now).await?;
        }
        Err(error)
    }
}

impl Node<'_> {
    /// Progress within a plan may be written later. A node that cannot run what it was granted is reported at once,
    /// because other grants depend on it.
    fn urgency<'p>(&self, plan: &'p Plan, next: &StatefulNodeStatus) -> Urgency<'p> {
        let before = self.status();
        let failed = |s: &StatefulNodeStatus| s.phase == NodePhase::Failed.as_ref();
        let runs = |s: &StatefulNodeStatus| s.pod_runs || conditions::is_true(&s.conditions, READY);
        // A node that stops serving is reported at once, because traffic may be about to move to it. In a rollout the
        // pod that is replaced is not at the granted hash and is not urgent.
        let at_grant = || self.facts().grant().is_some_and(|grant| *grant == *before.pod_template_hash);
        let urgent = has_moved(plan, before.plan.as_ref())
            || failed(next) != failed(before)
            || next.observed_generation != before.observed_generation
            || (runs(before) && !runs(next) && at_grant());
        if urgent {
            return Urgency::Now;
        }
        Urgency::Progress(plan.current_task().map_or("", |task| &task.message))
    }

    /// The generation that a failed reconcile reports as observed. A node that is down, was asked to leave and has no
    /// plan
    /// for that is deleted, since it cannot have one; so the generation that asks is observed with its plan.
    fn decided_generation(&self, plan: Option<&Plan>) -> i64 {
        let is_asked = self.stored.spec.as_ref().is_ok_and(|spec| spec.removal_id().is_some());
        let leaves = plan.is_some_and(|plan| removal_of(plan).is_some());
        if is_asked && !leaves { self.status().observed_generation } else { self.stored.meta.generation }
    }

    fn compute(
        &self,
        generation: i64,
        plan: Option<&Plan>,
        entries: &[HistoryEntry],
        invalid: Option<&str>,
    ) -> StatefulNodeStatus {
        // Read again, so that the facts include what this reconcile did.
        let facts = self.facts();
        let mut previous = self.status().clone();
        for entry in entries {
            remember(&mut previous.history, entry.clone());
        }
        let answer = self.scope.answers.last();
        let restarted_at = effective_restart(&self.stored);
        let input = StatusInput {
            previous: &previous,
            generation,
            plan,
            raw_plan: self.status().plan.as_ref(),
            sidecar: &answer,
            invalid,
            not_applied: self.report.not_applied.as_deref(),
            set_name: &self.stored.meta.name,
            restarted_at: restarted_at.as_ref(),
            claims: self.report.claims_applied,
            has_claims: self.stored.spec.as_ref().is_ok_and(|spec| !spec.volume_claim_templates.is_empty()),
            now: self.now,
        };
        StatefulNodeStatus { sidecar: self.report.sidecar.clone(), ..status(&facts, &input) }
    }

    async fn write(
        &self,
        after: &StatefulNodeStatus,
        plan: Option<&Plan>,
        invalid: Option<&str>,
        urgency: Urgency<'_>,
    ) -> Result<Next, ReconcileError> {
        let before = self.status();
        let (meta, kind) = (&self.stored.meta, Kind::StatefulNode);
        let progress = Progress { plan, finished_tasks: &self.report.finished_tasks };
        let remarks = self.remarks();
        let mut after = after.clone();
        let sentences: Vec<&str> = remarks.iter().map(|remark| remark.sentence.as_str()).collect();
        conditions::add_to_message(&mut after.conditions, NODE_UPDATE_IN_PROGRESS, &sentences);
        let said = conditions::find(&before.conditions, NODE_UPDATE_IN_PROGRESS).map_or("", |c| &c.message);
        let is_new = !sentences.iter().all(|sentence| said.contains(sentence));
        let urgency = if is_new { Urgency::Now } else { urgency };
        let next = save(self.cx, kind, meta, before, &after, urgency, progress).await?;
        for Remark { sentence, event } in remarks.iter().filter(|remark| !said.contains(&remark.sentence)) {
            if let Some((reason, cause)) = event {
                self.record(&Event::warning(*reason, cause, sentence));
            }
        }
        if let Some(sentence) = invalid.or(self.report.not_applied.as_deref()) {
            let cause = format!("{}/{sentence}", self.stored.meta.generation);
            self.record(&Event::warning(Reason::InvalidSpec, cause, sentence));
        }
        Ok(next)
    }

    /// What to report about requested restarts that are not carried out.
    fn remarks(&self) -> Vec<Remark> {
        let (meta, spec) = (&self.stored.meta, &self.stored.spec);
        let is_taken_back = spec.as_ref().is_ok_and(|s| s.grant_id().is_some_and(|id| id.is_by_abort()));
        if spec.is_err() || meta.terminating {
            return Vec::new();
        }
        let is_of_fleet = meta.controller().is_some() || meta.annotation(ANNOTATION_OWNER_UID).is_some();
        let obeyed = self.status().restarted_at().filter(|_| !is_taken_back);
        let restart = ignored_restart(meta, obeyed.as_ref(), is_of_fleet);
        restart.into_iter().chain(self.restarted_by_kubectl()).collect()
    }

    /// `kubectl rollout restart` of the node's StatefulSet writes an annotation into its template, which Windlass
    /// restores.
    fn restarted_by_kubectl(&self) -> Option<Remark> {
        let (set, meta) = (self.scope.set()?, &self.stored.meta);
        let template = self.stored.spec.as_ref().ok()?.pod_template.clone();
        let own = template["metadata"]["annotations"][ANNOTATION_KUBECTL_RESTART].as_str();
        let written = set.kubectl_restart.as_deref().filter(|written| Some(*written) != own)?;
        set.meta.is_controlled_by(&meta.uid).then_some(())?;
        let object = match &self.of_fleet.fleet {
            Some(fleet) => argument_of("nd", &fleet.meta.name, &meta.namespace),
            None => argument_of("sn", &meta.name, &meta.namespace),
        };
        let sentence = format!(
            "kubectl rollout restart has no effect on StatefulSet {}, because Windlass restores its template: run windlass restart {object}",
            set.meta.name
        );
        Some(Remark::ignored(format!("{ANNOTATION_KUBECTL_RESTART}={written}"), sentence))
    }
}
