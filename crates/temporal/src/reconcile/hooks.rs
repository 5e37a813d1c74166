//! Hooks of a rollout: whether they could be carried out, what one that failed leads to, and what is told of them.

use windlass_core::api::at_hook::point_of;
use windlass_core::api::{AtHook, HookPoint, OnHookFailure};
use windlass_engine::{Env, Plan, PlanState, control};

use super::look::Look;
use crate::cluster::ClusterError;
use crate::events::Event;
use crate::hooks::{HookTurn, HooksOf, HooksRefused};
use crate::planner::{hooks, routing};

impl Look<'_> {
    /// Whether the hooks that are listed could be carried out: else nothing of a rollout goes on.
    pub(super) async fn check_hooks(&mut self) {
        if self.facts.spec.hooks.is_empty() || self.facts.deleted_at.is_some() {
            return;
        }
        let checked = match (hooks::too_many(&self.facts), &self.cx.hooks) {
            (Some(sentence), _) => Err(HooksRefused::Lasting(sentence)),
            (None, None) => {
                Err(HooksRefused::Lasting("spec.hooks: this program carries no hooks out".to_owned()))
            }
            (None, Some(port)) => port.check(&HooksOf::facts(&self.facts), &self.facts.spec.hooks).await,
        };
        let Err(refused) = checked else { return };
        self.are_hooks_fine = false;
        if let HooksRefused::Lasting(sentence) = &refused {
            let cause = format!("{}/{sentence}", self.facts.generation);
            self.tell(Event::warning("InvalidSpec", cause, sentence.clone()));
        }
        self.facts.invalid.get_or_insert_with(|| refused.sentence().to_owned());
    }

    /// What the tasks of a plan work with, hooks among them.
    pub(super) fn equip(&self, env: Env, plan: &Plan) -> Env {
        let approved = self.read.annotation(windlass_core::api::names::ANNOTATION_APPROVE);
        match &self.cx.hooks {
            Some(port) => port.equip(env, HookTurn::new(&self.facts, plan, approved)),
            None => env,
        }
    }

    /// Brings what has not begun of a plan to the list. Whether anything changed.
    pub(super) fn follow_hooks(&self, plan: &mut Plan) -> bool {
        self.are_hooks_fine && plan.target_hash == self.facts.target.hash && hooks::follow(&self.facts, plan)
    }

    /// Goes on without a hook that failed, where its failure is to be passed over, and says so.
    pub(super) fn pass_over(&self, plan: &mut Plan) -> bool {
        if hooks::on_failure(&self.facts, plan) != Some(OnHookFailure::Continue) {
            return false;
        }
        if let Some(at) = AtHook::of(plan) {
            let said = hooks::said(&at);
            let note = format!("hook {} failed, and it goes on without it: {said}", at.hook);
            self.tell(Event::warning("HookFailed", at.tried(), note));
        }
        control::pass_over(plan)
    }

    /// Tells of a hook that failed, and of one that waits for a person, once for each attempt.
    pub(super) fn tell_of_hook(&self, plan: Option<&Plan>) {
        let Some(at) = plan.and_then(AtHook::of) else { return };
        let passes = plan.and_then(|plan| hooks::on_failure(&self.facts, plan));
        if at.failed && passes != Some(OnHookFailure::Continue) {
            let note = format!("hook {} failed: {}", at.hook, hooks::said(&at));
            self.tell(Event::warning("HookFailed", at.tried(), note));
        } else if at.asks && !at.failed {
            let (name, id) = (&self.facts.name, &at.task_id);
            let note = format!(
                "hook {} waits for a person: windlass approve wwd/{name}, or the annotation windlass.dev/approve={id}",
                at.hook
            );
            self.tell(Event::normal("ApprovalRequested", at.tried(), note));
        }
    }

    /// Ends what hooks of a plan have begun that is about to end.
    pub(super) async fn end_hooks(&self, plan: &Plan) -> Result<(), ClusterError> {
        let Some(port) = &self.cx.hooks else { return Ok(()) };
        port.end(&HooksOf::facts(&self.facts), plan).await.map_err(ClusterError::Transient)
    }

    /// Puts the ramp back that somebody changed by hand while the plan is between two steps of it.
    pub(super) async fn keep_ramp(&self, plan: &Plan) {
        let Some((write, percent)) = routing::kept_ramp(&self.facts, plan) else { return };
        if self.scope().write(&write).await.is_ok() {
            let note =
                format!("the ramp was changed by hand, and is put back at the plan's step of {percent} %");
            self.tell(Event::warning("RampRestored", format!("{}/{}", plan.id, self.now), note));
        }
    }

    /// Whether a plan that ended with hooks is of no use any more: what it had promoted is not current.
    pub(super) fn was_moved_meanwhile(&self, plan: &Plan) -> bool {
        let came_last = plan.tasks.last().and_then(point_of) == Some(HookPoint::AfterRollout);
        plan.state == PlanState::Complete
            && came_last
            && self.facts.described().is_some()
            && self.facts.current() != Some(&self.facts.target.build)
    }
}
