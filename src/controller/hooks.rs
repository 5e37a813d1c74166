//! What the hooks of a fleet's plans and of its nodes' plans have in common: the fleet that they belong to, and the
//! scope that their tasks work with.

use std::sync::Arc;

use super::Context;
use super::events::Event;
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_OWNER_UID, LABEL_DEPLOYMENT};
use crate::api::{Hook, NodeDeploymentSpec, NodeDeploymentStatus, OnHookFailure, RawPlan, Reason};
use crate::engine::{self, Plan, TaskRecord};
use crate::hooks::Values;
use crate::planner::fleet::Cause;
use crate::planner::fleet::hooks::{AtHook, CurrentHook};
use crate::planner::hooks::{hook_of, on_failure};
use crate::tasks::hooks::{About, HookList, HookScope, JobOwner};
use windlass_kube_port::observed::{Meta, ObservedFleet};
use windlass_kube_port::{Key, Kind};

impl Context {
    /// The fleet that a node belongs to, if it belongs to one and the fleet exists. Hooks are read from the fleet
    /// itself: a copy in the spec of each node would cost a write per node.
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

    /// The scope of a plan's hooks, without what depends on the current hook point: callers fill in `about`, `skip` and
    /// `hold`.
    pub(super) fn hook_scope(
        &self,
        owner: JobOwner,
        spec: Option<Arc<NodeDeploymentSpec>>,
        objects: &[&Meta],
        values: Values,
    ) -> HookScope {
        let approved = objects.iter().filter_map(|meta| meta.annotation(ANNOTATION_APPROVE));
        HookScope {
            hooks: spec.map_or(HookList::Unknown, HookList::Fleet),
            owner,
            values,
            rules: self.hook_rules.clone(),
            cluster: self.cluster.clone(),
            prober: self.hook_prober.clone(),
            approved: approved.map(str::to_owned).collect(),
            about: About::EveryPoint,
            skip: None,
            hold: None,
            awaits: None,
        }
    }
}

/// The rollout hashes that a fleet moves from and to. Without a rollout, these are the last completed hash and the
/// requested hash. If a rollout back to the last completed hash superseded another one, the fleet moves from the target
/// of the superseded rollout.
pub(super) fn rollout_hashes(status: &NodeDeploymentStatus) -> (String, String) {
    let rollout = status.rollout.as_ref();
    let from = rollout.map(|rollout| rollout.from_hash.clone()).filter(|hash| !hash.is_empty());
    let from = from.unwrap_or_else(|| status.last_completed_rollout_hash.clone());
    let target = rollout.map(|rollout| rollout.target_hash.clone());
    let target = target.unwrap_or_else(|| status.requested_rollout_hash.clone());
    let goes_back = rollout.is_some_and(|rollout| rollout.cause == Cause::Superseded.as_ref());
    let before = status.history.last().map(|entry| entry.target_hash.clone());
    match before.filter(|before| goes_back && from == target && !before.is_empty()) {
        Some(before) => (before, target),
        None => (from, target),
    }
}

/// True if a plan has tasks that carry out hooks.
pub(super) fn has_hooks(plan: &Plan) -> bool {
    plan.tasks.iter().any(|task| hook_of(task).is_some())
}

/// Skips the failed hook that the plan is held by, if the hook's policy is Continue. Returns the event to record on the
/// fleet, also for a hook of a node.
pub(super) fn pass_over(plan: &mut Plan, hooks: &[Hook], node: Option<&str>) -> Option<Event> {
    if on_failure(plan, hooks) != Some(OnHookFailure::Continue) {
        return None;
    }
    let at = AtHook::of(plan);
    engine::pass_over(plan);
    let at = at?;
    let place = CurrentHook { at: &at, node };
    let note = format!("{} failed, and the plan continues without it: {}", place.name(), at.message);
    Some(Event::warning(Reason::HookFailed, at.tried(), note))
}

/// True if the state of the plan's current hook differs from the persisted plan: it has begun, or its progress has
/// changed. Such a change is written at once, because the hook's deadline and its peers depend on it. So is the progress
/// of an embedder's own task: its next run begins with what is persisted.
pub(super) fn has_moved(plan: &Plan, stored: Option<&RawPlan>) -> bool {
    let is_kept = |task: &&TaskRecord| hook_of(task).is_some() || !task.progress.is_null();
    let Some(task) = plan.current_task().filter(is_kept) else { return false };
    let said = |task: &TaskRecord| {
        (task.id.clone(), task.state, task.attempt, task.progress.clone(), task.deadline.is_some())
    };
    let stored = stored.and_then(|raw| raw.parse().ok());
    stored.as_ref().and_then(Plan::current_task).map(said) != Some(said(task))
}
