//! What the hooks of a fleet's plans and of its nodes' have in common: whose they are, and what their tasks are handed.

use std::sync::Arc;

use super::Context;
use super::events::Event;
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_OWNER_UID, LABEL_DEPLOYMENT};
use crate::api::{Hook, NodeDeploymentSpec, NodeDeploymentStatus, OnHookFailure, RawPlan, Reason};
use crate::cluster::observed::{Meta, ObservedFleet};
use crate::cluster::{Key, Kind};
use crate::engine::{self, Plan, TaskRecord, held_by};
use crate::hooks::Values;
use crate::planner::fleet::Cause;
use crate::planner::fleet::hooks::{AtHook, CurrentHook};
use crate::planner::hooks::hook_of;
use crate::tasks::hooks::{About, HookList, HookScope, JobOwner};

impl Context {
    /// The fleet that a node belongs to, if it does and the fleet is there. Its hooks are read of the fleet itself: a copy in
    /// each node's spec would cost a write each.
    pub(super) fn fleet_of(&self, node: &Meta) -> Option<Arc<ObservedFleet>> {
        let (name, uid) = match node.controller() {
            Some(owner) if owner.kind == Kind::NodeDeployment.name() => {
                (owner.name.as_str(), owner.uid.as_str())
            }
            Some(_) => return None,
            None => (node.label(LABEL_DEPLOYMENT)?, node.annotation(ANNOTATION_OWNER_UID)?),
        };
        self.view.fleets.get(&Key::new(&node.namespace, name)).filter(|fleet| fleet.meta.uid == uid)
    }

    /// What a plan's hooks are handed, but for what is of this very point.
    pub(super) fn hook_scope(
        &self,
        owner: JobOwner,
        spec: Option<Arc<NodeDeploymentSpec>>,
        objects: &[&Meta],
        values: Values,
    ) -> HookScope {
        let approved = objects.iter().filter_map(|meta| meta.annotation(ANNOTATION_APPROVE));
        HookScope {
            hooks: spec.map_or(HookList::Nobodys, HookList::Fleet),
            owner,
            values,
            rules: self.hook_rules.clone(),
            cluster: self.cluster.clone(),
            askers: self.hook_askers.clone(),
            approved: approved.map(str::to_owned).collect(),
            about: About::EveryPoint,
            skip: None,
            hold: None,
        }
    }
}

/// The rollout hashes that a fleet comes from and goes to; where it goes nowhere, what it is at and what is wanted. On the way
/// back to what last completed it comes from what the rollout before went to.
pub(super) fn rollout_hashes(status: &NodeDeploymentStatus) -> (String, String) {
    let rollout = status.rollout.as_ref();
    let from = rollout.map(|rollout| rollout.from_hash.clone()).filter(|hash| !hash.is_empty());
    let from = from.unwrap_or_else(|| status.last_completed_rollout_hash.clone());
    let target = rollout.map(|rollout| rollout.target_hash.clone());
    let target = target.unwrap_or_else(|| status.requested_rollout_hash.clone());
    let goes_back = rollout.is_some_and(|rollout| rollout.cause == Cause::Superseded.as_str());
    let before = status.history.last().map(|entry| entry.target_hash.clone());
    match before.filter(|before| goes_back && from == target && !before.is_empty()) {
        Some(before) => (before, target),
        None => (from, target),
    }
}

/// Whether a plan has tasks that carry out hooks.
pub(super) fn has_hooks(plan: &Plan) -> bool {
    plan.tasks.iter().any(|task| hook_of(task).is_some())
}

/// What the failure that a plan holds for leads to by the list; Hold where the hook is not in it any more.
pub(super) fn on_failure(plan: &Plan, hooks: &[Hook]) -> Option<OnHookFailure> {
    let task = held_by(plan)?;
    let hook = hooks.iter().find(|hook| Some(hook.name.as_str()) == hook_of(task));
    Some(hook.map(Hook::on_failure).unwrap_or_default())
}

/// Goes on without a hook that failed, where its failure is to be passed over. What is said of that is the fleet's, also of a
/// node's hook.
pub(super) fn pass_over(plan: &mut Plan, hooks: &[Hook], node: Option<&str>) -> Option<Event> {
    if on_failure(plan, hooks) != Some(OnHookFailure::Continue) {
        return None;
    }
    let at = AtHook::of(plan);
    engine::pass_over(plan);
    let at = at?;
    let place = CurrentHook { at: &at, node };
    let note = format!("{} failed, and it goes on without it: {}", place.name(), place.said());
    Some(Event::warning(Reason::HookFailed, at.tried(), note))
}

/// Whether a plan's hook is somewhere else than the persisted plan says: it has begun, or remembers something. That is
/// written at once, since its clock and its peers rest on it.
pub(super) fn has_moved(plan: &Plan, stored: Option<&RawPlan>) -> bool {
    let Some(task) = plan.current_task().filter(|task| hook_of(task).is_some()) else { return false };
    let said = |task: &TaskRecord| {
        (task.id.clone(), task.state, task.attempt, task.progress.clone(), task.deadline.is_some())
    };
    let stored = stored.and_then(|raw| raw.parse().ok());
    stored.as_ref().and_then(Plan::current_task).map(said) != Some(said(task))
}
