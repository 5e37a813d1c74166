//! The first stage: reads the state and a person's requests, and asks the API server what no watch shows: whether it
//! takes
//! the desired template and the hooks' Jobs, whether the objects exist that the template names, and which names are free for a new set of nodes. It stores revisions, and
//! nothing else: a decision for a revision that cannot be stored would block an abort or a rollback.

use std::sync::Arc;

use super::context::Fleet;
use crate::api::{HookRetry, Reason, RevisionName};
use crate::apply::{Admission, claim_growth, fleet_objects, references};
use crate::controller::ReconcileError;
use crate::controller::record::found;
use crate::engine::Plan;
use crate::planner::fleet::requests::Remark;
use crate::planner::fleet::sets::naming::SetNameAnswer;
use crate::planner::fleet::sets::stage::took_over;
use crate::planner::fleet::status::{is_stalled, rollout_target_of};
use crate::planner::fleet::{Blocker, FleetFacts, decide, possible};

/// A fleet before anything is decided in this reconcile.
#[must_use]
pub(super) struct Probed<'a> {
    pub(super) fleet: Fleet<'a>,
    pub(super) facts: Arc<FleetFacts>,
    /// The stored plan, edited as a person or the list of hooks requests. The error is a plan that ends now and
    /// contains the reason.
    pub(super) plan: Result<Option<Plan>, Box<Plan>>,
    pub(super) edits: Edits,
    /// The name of the set that the decision makes, if it makes one and the name had to be asked for.
    pub(super) set_name: SetNameAnswer,
}

/// How the stored plan was edited.
#[derive(Default)]
pub(super) struct Edits {
    /// True if a person skipped one of its tasks.
    pub(super) skipped: bool,
    /// The hooks that a person has retried.
    pub(super) retried: Option<HookRetry>,
    /// True if its tasks were changed to follow the list of hooks.
    pub(super) followed: bool,
}

impl<'a> Fleet<'a> {
    pub(super) async fn probe(mut self) -> Result<Probed<'a>, ReconcileError> {
        self.check().await?;
        let mut facts = self.scope.facts();
        if let Some(sentence) = &facts.findings.undecided {
            self.scope.block(Blocker::Ambiguous(sentence.clone()));
        }
        let mut edits = Edits::default();
        let plan = self.stored_plan();
        self.report.finished_tasks = found(&plan);
        let plan = plan.map(|mut plan| {
            edits.skipped = plan.as_mut().is_some_and(|plan| self.skip(plan));
            edits.retried = self.obey_retry(plan.as_mut(), &facts);
            edits.followed = plan.as_mut().is_some_and(|plan| self.follow_hooks(plan));
            plan
        });
        let mut set_name = SetNameAnswer::NotAsked;
        if let Ok(plan) = &plan {
            let status = &self.scope.fleet.status;
            let decision = decide(
                &facts,
                plan.as_ref(),
                &rollout_target_of(status),
                is_stalled(status, &facts, self.now),
            );
            set_name = self.ask_for_name(&facts, &decision).await;
            // Read again: the stores may have changed while names were looked up.
            facts = self.scope.facts();
        }
        Ok(Probed { fleet: self, facts, plan, edits, set_name })
    }

    /// Checks whether a rollout to the desired template can start. If so, stores its revision.
    async fn check(&mut self) -> Result<(), ReconcileError> {
        self.report.update_revision =
            RevisionName::recorded(self.scope.fleet.status.update_revision.as_str());
        if self.scope.fleet.meta.terminating {
            return Ok(());
        }
        if let Some(of) = &self.of_pods {
            // The others are rolled out.
            let refused = of.refused.clone().filter(|_| of.pods.sets.is_empty());
            self.scope.block(refused.map(Blocker::Spec));
            self.scope.block(self.scope.check_windows_and_order());
            let of_hooks = self.check_hooks().await;
            self.scope.block(of_hooks);
            return Ok(());
        }
        // A missing revision does not block the rest.
        match fleet_objects::restore_revisions(&self.scope).await {
            Ok(sentence) => self.report.not_applied = sentence,
            Err(error) if error.is_conflict() => {}
            Err(error) => self.note(error),
        }
        // A promotion continues to its persisted target. The current spec is checked when the promotion is done.
        if self.scope.promoting().is_some() {
            // Its hooks are nevertheless read from the current spec.
            if took_over(&self.scope.fleet.status).is_some() {
                self.scope.blocker = self.check_hooks().await;
            }
            return Ok(());
        }
        self.check_template().await?;
        self.check_references().await;
        Ok(())
    }

    /// Checks whether the API server accepts the desired template. If so, stores its revision.
    async fn check_template(&mut self) -> Result<(), ReconcileError> {
        if let Some(sentence) = possible::why_not(&self.scope.spec) {
            self.scope.block(Blocker::Spec(sentence));
            return Ok(());
        }
        self.scope.block(self.scope.check_windows_and_order());
        let of_hooks = self.check_hooks().await;
        match fleet_objects::ensure_revision(&mut self.scope).await {
            Ok(Admission::Admitted(revision)) => {
                self.report.update_revision = Some(revision);
                self.scope.block(of_hooks);
                match claim_growth::refusal(&self.scope).await {
                    Ok(sentence) => self.scope.block(sentence.map(Blocker::Spec)),
                    Err(error) => return self.unanswered(error),
                }
            }
            Ok(Admission::Refused(sentence)) => self.scope.block(Blocker::Spec(sentence)),
            Err(error) => return self.unanswered(error),
        }
        Ok(())
    }

    /// Checks whether the objects exist that the template names. Those that may not be read are skipped, and a remark says so.
    async fn check_references(&mut self) {
        match references::check(&mut self.scope).await {
            Ok(unread) => self.report.remarks.extend(unread.kinds().map(|kinds| {
                let sentence = format!(
                    "not checked whether the objects that the template names exist: the operator has no right to get \
                     {kinds}; see deploy/rbac/references-*.yaml"
                );
                Remark::of(Reason::ReferencesUnread, kinds, sentence)
            })),
            Err(error) => self.note(ReconcileError::Check(error)),
        }
    }

    /// No rollout to the template starts before the answer is known. Everything independent of it continues.
    fn unanswered(&mut self, error: ReconcileError) -> Result<(), ReconcileError> {
        if error.is_conflict() {
            return Err(error);
        }
        let sentence = format!("could not check whether the API server accepts spec.template: {error}");
        self.scope.block(Blocker::Unanswered(sentence));
        self.note(error);
        Ok(())
    }
}
