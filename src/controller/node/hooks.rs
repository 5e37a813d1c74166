//! Hooks in a node's plans: which a plan has, what they are handed, and what becomes of those that fail.

use super::context::Node;
use crate::api::names::{ANNOTATION_SKIP, LABEL_SET, place_of, pod_name};
use crate::api::{HookPoint, TaskType};
use crate::cluster::Kind;
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::controller::hooks::{has_hooks, pass_over, rollout_hashes};
use crate::engine::{self, Outcome, Plan};
use crate::hooks::Values;
use crate::planner::fleet::WAITS_TO_BE_RESUMED;
use crate::planner::fleet::hooks::tried;
use crate::planner::hooks::{HookPlacement, is_of_list, point_of};
use crate::planner::node::decide::{is_rolling, recipes};
use crate::tasks::Replacement;
use crate::tasks::hooks::{About, HookScope, JobOwner, delete_jobs};

impl Node<'_> {
    /// The hooks of a plan of this recipe: of the plan that there is, or of one that begins now.
    pub(super) fn wanted_hooks(&self, recipe: &str, plan: Option<&Plan>) -> HookPlacement<'_> {
        let hooks = self.of_fleet.hooks();
        if hooks.is_empty() {
            return HookPlacement::default();
        }
        let status = &self.stored.status;
        let mut points = Vec::new();
        if recipe == recipes::REMOVE_NODE {
            points.push(HookPoint::BeforeRemove);
        } else if is_rolling(recipe) && self.moves(plan) {
            // A node that never was Ready is made for the first time: nothing has moved it. Its pod may run all the same.
            let begun = plan.map_or(self.now, |plan| plan.started_at);
            let was_ready = status.first_ready_at.is_some_and(|at| at < begun);
            let has = |point| {
                plan.is_some_and(|p| p.tasks.iter().any(|t| is_of_list(t) && point_of(t) == Some(point)))
            };
            let ran = plan.is_none() && !status.pod_uid.is_empty();
            if was_ready || ran || has(HookPoint::BeforeNode) {
                points.push(HookPoint::BeforeNode);
            }
            if was_ready {
                points.push(HookPoint::AfterNode);
            }
        }
        HookPlacement { hooks, points, stops: Vec::new() }
    }

    /// True if the plan replaces the pod. A plan that only records a grant for the running hash, as after an abort, gets no
    /// hooks.
    fn moves(&self, plan: Option<&Plan>) -> bool {
        if plan.is_some_and(|plan| plan.tasks.iter().any(is_of_list)) {
            return true;
        }
        let is_replaced =
            |plan: &Plan| plan.tasks.iter().any(|task| TaskType::ReplacePod.is(task) && task.state.is_over());
        let facts = self.scope.facts(&self.stored);
        let stays = facts.staying_pod().is_some_and(|pod| facts.is_at_grant(pod));
        !stays && !plan.is_some_and(is_replaced)
    }

    /// Brings what has not begun of the plan to the list, and has a hook that failed tried again where the fleet says so.
    /// Whether anything changed.
    pub(super) fn follow_fleet(&self, plan: &mut Plan) -> bool {
        if !plan.is_active() || (self.of_fleet.hooks().is_empty() && !has_hooks(plan)) {
            return false;
        }
        let again = engine::held_by(plan).is_some_and(|task| self.of_fleet.retries(&tried(task)));
        if again {
            engine::try_again(plan);
        }
        let Ok(recipe) = self.cx.registry.recipe(&plan.recipe) else { return again };
        let wanted = self.wanted_hooks(&plan.recipe, Some(plan));
        wanted.bring_to(plan, &recipe.tasks) || again
    }

    /// The task of this plan that a person says need not be done: named on the node, or on its fleet.
    pub(super) fn skipped_by_fleet<'a>(&'a self, plan: &Plan) -> Option<&'a str> {
        let named = self.of_fleet.fleet.as_ref()?.meta.annotation(ANNOTATION_SKIP)?;
        plan.tasks.iter().any(|task| task.id == named).then_some(named)
    }

    fn job_owner(&self) -> JobOwner {
        let meta = &self.stored.meta;
        let fleet = self.of_fleet.fleet.as_ref().map(|fleet| fleet.meta.name.clone());
        JobOwner {
            kind: Kind::StatefulNode,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            fleet: fleet.unwrap_or_default(),
        }
    }

    /// Deletes the Jobs of a plan that is about to end before it is done.
    pub(super) async fn delete_jobs(&self, plan: &Plan) -> Result<(), ReconcileError> {
        if !has_hooks(plan) {
            return Ok(());
        }
        let deleted = delete_jobs(self.cx.cluster.as_ref(), &self.job_owner(), plan).await;
        deleted.map_err(ReconcileError::Children)
    }

    /// What the hooks of this plan are handed; `None` where it has none.
    pub(super) fn hook_scope(&self, plan: &Plan) -> Option<HookScope> {
        if !has_hooks(plan) {
            return None;
        }
        let meta = &self.stored.meta;
        let fleet = self.of_fleet.fleet.as_ref();
        let pod = self.scope.pod();
        let place = fleet.and_then(|fleet| place_of(&fleet.meta.name, &meta.name));
        let (set, ordinal) = place.unzip();
        let labelled = || meta.label(LABEL_SET).map(str::to_owned);
        let wanted = self.scope.wanted(&self.stored).map(|wanted| wanted.image).unwrap_or_default();
        let hashes = fleet.map(|fleet| rollout_hashes(&fleet.status));
        let values = Values {
            fleet: fleet.map(|fleet| fleet.meta.name.clone()),
            namespace: Some(meta.namespace.clone()),
            node: Some(meta.name.clone()),
            ordinal: ordinal.map(|ordinal| ordinal.to_string()),
            pod: Some(pod_name(&meta.name)),
            pod_ip: pod.map(|pod| pod.ip.clone()).filter(|ip| !ip.is_empty()),
            image: Some(wanted),
            from_hash: hashes.as_ref().map(|(from, _)| from.clone()),
            target_hash: hashes.map(|(_, target)| target),
            set: set.map(String::from).or_else(labelled),
            ..Values::default()
        };
        let point = plan.current_task().and_then(point_of);
        let (mut skip, mut hold) = (None, None);
        match point {
            Some(HookPoint::BeforeNode) => match self.why_not_before_node() {
                Some(Ok(why)) => skip = Some(why),
                Some(Err(why)) => hold = Some(why),
                None => {}
            },
            Some(HookPoint::BeforeRemove) if self.of_fleet.is_paused() => {
                hold = Some(WAITS_TO_BE_RESUMED.to_owned());
            }
            _ => {}
        }
        let objects = [Some(meta), fleet.map(|fleet| &fleet.meta)];
        let objects: Vec<_> = objects.into_iter().flatten().collect();
        let scope = self.cx.hook_scope(self.job_owner(), self.of_fleet.spec().cloned(), &objects, values);
        Some(HookScope { about: About::Point(point), skip, hold, ..scope })
    }

    /// Why a hook before the pod is replaced is not for this pod (a broken node's fix must get through), or, as an error, what
    /// is waited for before that can be told.
    fn why_not_before_node(&self) -> Option<Result<String, String>> {
        let facts = self.scope.facts(&self.stored);
        if !facts.pod_runs() {
            return Some(Ok("the main container of its pod does not run".to_owned()));
        }
        match self.scope.replacement() {
            Ok(Replacement::Due(_)) => None,
            Ok(Replacement::Done) => Some(Ok("its pod is not replaced".to_owned())),
            Ok(Replacement::NotNow(Outcome::Waiting { message, .. })) => Some(Err(message)),
            // What the plan rests on is gone: the task that replaces the pod says so.
            Ok(Replacement::NotNow(_)) => Some(Ok("its pod is not replaced by this plan".to_owned())),
            Err(error) => Some(Err(error.to_string())),
        }
    }

    /// Goes on without a hook that failed, where its failure is to be passed over. What is said of that is said of the fleet.
    pub(super) fn pass_over(&self, plan: &mut Plan) -> Option<Event> {
        pass_over(plan, self.of_fleet.hooks(), Some(&self.stored.meta.name))
    }
}
