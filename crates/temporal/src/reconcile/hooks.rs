//! Hooks of a rollout: their checks, the reaction to a failed one, and their events.

use windlass_core::api::at_hook::point_of;
use windlass_core::api::names::argument_of;
use windlass_core::api::{AtHook, HookPoint, OnHookFailure};
use windlass_engine::{Env, Plan, PlanState, control};
use windlass_kube_port::Event;

use super::state::Reconcile;
use crate::api::Reason;
use crate::hooks::{HookContext, HookedObject, HooksRejected};
use crate::planner::{hooks, routing};

impl Reconcile<'_> {
    /// Checks the hooks of the spec. While they are not accepted, no rollout continues.
    pub(super) async fn check_hooks(&mut self) {
        if self.facts.spec.hooks.is_empty() || self.facts.deleted_at.is_some() {
            return;
        }
        let checked = match (hooks::too_many_tasks(&self.facts), &self.cx.hooks) {
            (Some(sentence), _) => Err(HooksRejected::Permanent(sentence)),
            (None, None) => Err(HooksRejected::Permanent(
                "spec.hooks: this program does not support hooks; remove spec.hooks".to_owned(),
            )),
            (None, Some(port)) => port.check(&HookedObject::facts(&self.facts), &self.facts.spec.hooks).await,
        };
        let Err(refused) = checked else { return };
        self.is_accepted = false;
        if let HooksRejected::Permanent(sentence) = &refused {
            let cause = format!("{}/{sentence}", self.facts.generation);
            self.record_event(Event::warning(Reason::InvalidSpec, cause, sentence.clone()));
        }
        self.facts.invalid.get_or_insert_with(|| refused.sentence().to_owned());
    }

    /// The environment of a plan's tasks, with what hooks need.
    pub(super) fn equip(&self, env: Env, plan: &Plan) -> Env {
        let approved = self.read.annotation(windlass_core::api::names::ANNOTATION_APPROVE);
        match &self.cx.hooks {
            Some(port) => port.equip(env, HookContext::new(&self.facts, plan, approved)),
            None => env,
        }
    }

    /// Updates the tasks that have not started to match the hooks of the spec. True if the plan changed.
    pub(super) fn follow_hooks(&self, plan: &mut Plan) -> bool {
        self.is_accepted && plan.target_hash == self.facts.target.hash && hooks::follow(&self.facts, plan)
    }

    /// Continues past a failed hook whose failure policy is Continue, with an event. True if it did.
    pub(super) fn pass_over(&self, plan: &mut Plan) -> bool {
        if hooks::on_failure(plan, &self.facts.spec.hooks) != Some(OnHookFailure::Continue) {
            return false;
        }
        if let Some(at) = AtHook::of(plan) {
            let note = format!("hook {} failed, and the plan continues without it: {}", at.hook, at.message);
            self.record_event(Event::warning(Reason::HookFailed, at.tried(), note));
        }
        control::pass_over(plan)
    }

    /// Records the event of a failed hook, or of one that waits for approval, once for each attempt.
    pub(super) fn report_hook(&self, plan: Option<&Plan>) {
        let Some(at) = plan.and_then(AtHook::of) else { return };
        let passes = plan.and_then(|plan| hooks::on_failure(plan, &self.facts.spec.hooks));
        if at.failed && passes != Some(OnHookFailure::Continue) {
            let note = format!("hook {} failed: {}", at.hook, at.message);
            self.record_event(Event::warning(Reason::HookFailed, at.tried(), note));
        } else if at.asks && !at.failed {
            let object = argument_of("wwd", &self.facts.name, &self.facts.namespace);
            let id = &at.task_id;
            let note = format!(
                "hook {} is waiting for approval: windlass approve {object}, or annotate windlass.dev/approve={id}",
                at.hook
            );
            self.record_event(Event::normal(Reason::ApprovalRequested, at.tried(), note));
        }
    }

    /// Stops everything that the hooks of an ending plan have started.
    pub(super) async fn end_hooks(&self, plan: &Plan) -> Result<(), String> {
        let Some(port) = &self.cx.hooks else { return Ok(()) };
        port.end(&HookedObject::facts(&self.facts), plan).await
    }

    /// Restores the ramp that a person changed while the plan is between two steps.
    pub(super) async fn restore_ramp(&self, plan: &Plan) {
        let Some((write, percent)) = routing::ramp_to_restore(&self.facts, plan, self.now) else { return };
        if self.scope().write(&write).await.is_ok() {
            let note = format!(
                "another client changed the ramp; Windlass restored the {percent} % of the plan's step"
            );
            self.record_event(Event::warning(
                Reason::RampRestored,
                format!("{}/{}", plan.id, self.now),
                note,
            ));
        }
    }

    /// True if a plan that ended with hooks is obsolete: the version that it promoted is no longer current.
    pub(super) fn was_rerouted(&self, plan: &Plan) -> bool {
        let came_last = plan.tasks.last().and_then(point_of) == Some(HookPoint::AfterRollout);
        plan.state == PlanState::Complete
            && came_last
            && self.facts.described().is_some()
            && self.facts.current() != Some(&self.facts.target.build)
    }
}
