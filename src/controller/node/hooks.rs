//! Hooks in a node's plans: which hooks a plan has, the scope of their tasks, and what follows from a failure.

use super::context::Node;
use crate::api::names::{ANNOTATION_SKIP, LABEL_SET, place_of, pod_name};
use crate::api::{HookPoint, TaskType};
use crate::controller::ReconcileError;
use crate::controller::events::Event;
use crate::controller::hooks::{has_hooks, pass_over, rollout_hashes};
use crate::engine::{self, Outcome, Plan, TaskRecord};
use crate::hooks::{Values, needs_pod};
use crate::planner::fleet::WAITS_TO_BE_RESUMED;
use crate::planner::fleet::hooks::tried;
use crate::planner::hooks::{HookPlacement, hook_of, is_of_list, point_of};
use crate::planner::node::StatefulSetFact;
use crate::planner::node::decide::{is_rolling, recipes};
use crate::tasks::hooks::{About, Awaited, HookScope, JobOwner, delete_jobs, waits_for_job};
use crate::tasks::{Replacement, SET_OF_EARLIER};
use windlass_kube_port::Kind;

/// What happens to a hook whose turn it is.
enum HookTurn {
    /// It runs.
    Run,
    /// It does not apply to this node or pod, and why.
    Skip(String),
    /// That is not known yet, and what it waits for.
    Hold(String),
    /// It waits for this, whatever its action.
    Await(Awaited),
}

impl Node<'_> {
    /// The hooks that belong into a plan of this recipe: the existing plan, or a new one if `plan` is `None`.
    pub(super) fn desired_hooks(&self, recipe: &str, plan: Option<&Plan>) -> HookPlacement<'_> {
        let hooks = self.of_fleet.hooks();
        if hooks.is_empty() {
            return HookPlacement::default();
        }
        let status = &self.stored.status;
        let mut points = Vec::new();
        if recipe == recipes::REMOVE_NODE {
            points.push(HookPoint::BeforeRemove);
        } else if is_rolling(recipe) && self.moves(plan) {
            // A node that was never Ready is being created: there is no earlier pod to move from. Its pod may run
            // nevertheless.
            let has = |point| {
                plan.is_some_and(|p| p.tasks.iter().any(|t| is_of_list(t) && point_of(t) == Some(point)))
            };
            // The start of a plan counts more than the times: the clock may have been set back, or the status may
            // have lost them.
            let is_created_here = has(HookPoint::BeforeCreate) || has(HookPoint::AfterCreate);
            let was_ready = has(HookPoint::AfterNode)
                || (!is_created_here
                    && status.first_ready_at.is_some_and(|at| plan.is_none_or(|plan| at < plan.started_at)));
            let ran = plan.is_none() && !status.pod_uid.is_empty();
            if was_ready || ran || has(HookPoint::BeforeNode) {
                points.push(HookPoint::BeforeNode);
            }
            if was_ready {
                points.push(HookPoint::AfterNode);
            }
            let is_first_start = self.is_first_start();
            if has(HookPoint::BeforeCreate) || is_first_start {
                points.push(HookPoint::BeforeCreate);
            }
            if is_created_here || is_first_start {
                points.push(HookPoint::AfterCreate);
            }
        }
        HookPlacement { hooks, points, ..HookPlacement::default() }
    }

    /// True if the plan's hook at `BeforeRemove` needs no pod, and hooks at `BeforeCreate` may have announced the node.
    fn may_leave_without_pod(&self, plan: &Plan) -> bool {
        let hooks = self.of_fleet.hooks();
        let name = plan.current_task().and_then(hook_of);
        let is_without = hooks.iter().any(|hook| Some(hook.name.as_str()) == name && !needs_pod(hook));
        is_without && hooks.iter().any(|hook| hook.at == HookPoint::BeforeCreate)
    }

    /// True if the plan replaces the pod. A plan that only records a grant for the running hash, as after an abort,
    /// gets no hooks.
    fn moves(&self, plan: Option<&Plan>) -> bool {
        if plan.is_some_and(|plan| plan.tasks.iter().any(is_of_list)) {
            return true;
        }
        let is_replaced =
            |plan: &Plan| plan.tasks.iter().any(|task| TaskType::ReplacePod.is(task) && task.state.is_over());
        let facts = self.scope.facts(&self.stored);
        let stays = facts.staying_pod().is_some_and(|pod| facts.is_in_place(pod));
        !stays && !plan.is_some_and(is_replaced)
    }

    /// True if the node has no pod, no StatefulSet and no data: it never ran, and no pod has ever used its volume claims.
    fn is_first_start(&self) -> bool {
        let facts = self.scope.facts(&self.stored);
        facts.live().is_none() && self.never_ran() && self.scope.used_claims(&self.stored).next().is_none()
    }

    /// Brings the tasks that have not begun in line with the fleet's list of hooks, and retries a failed hook if the
    /// fleet requests it. Returns true if the plan changed.
    pub(super) fn follow_fleet(&self, plan: &mut Plan) -> bool {
        if !plan.is_active()
            // Without the fleet's list nobody has taken a hook out of it.
            || (self.of_fleet.spec().is_none() && has_hooks(plan))
            || (self.of_fleet.hooks().is_empty() && !has_hooks(plan))
        {
            return false;
        }
        let again = engine::held_by(plan).is_some_and(|task| self.of_fleet.retries(&tried(task)));
        if again {
            engine::try_again(plan);
        }
        let Ok(recipe) = self.cx.registry.recipe(&plan.recipe) else { return again };
        if plan.tasks.iter().any(|task| self.may_be_withdrawn(task)) {
            return again;
        }
        let wanted = self.desired_hooks(&plan.recipe, Some(plan));
        wanted.bring_to(plan, &recipe.tasks) || again
    }

    /// True if a task is a hook that comes before the pod is replaced and that was taken out of the list, and the
    /// fleet has
    /// not decided yet whether the plan's target was withdrawn as well.
    fn may_be_withdrawn(&self, task: &TaskRecord) -> bool {
        let is_due = !task.state.is_over() && point_of(task) == Some(HookPoint::BeforeNode);
        let is_listed = |name: &str| self.of_fleet.hooks().iter().any(|hook| hook.name == name);
        is_due
            && hook_of(task).is_some_and(|name| !is_listed(name))
            && !self.of_fleet.has_decided_on(&self.cx.view, &self.stored, self.now)
    }

    /// The task of this plan that a person skips by the annotation on the fleet.
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

    /// Deletes the Jobs of a plan that is about to end early.
    pub(super) async fn delete_jobs(&self, plan: &Plan) -> Result<(), ReconcileError> {
        if !has_hooks(plan) {
            return Ok(());
        }
        let deleted = &self.cx.deleted_jobs;
        let (cluster, owner) = (self.cx.cluster.as_ref(), self.job_owner());
        delete_jobs(cluster, &owner, plan, deleted).await.map_err(ReconcileError::Children)?;
        // The Job of the plan that follows may write to the same volume.
        let waits = waits_for_job(cluster, &owner, plan, None).await.map_err(ReconcileError::Children)?;
        waits.map_or(Ok(()), |sentence| Err(ReconcileError::Plan(sentence)))
    }

    /// The scope of this plan's hooks; `None` if it has none.
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
        let (mut skip, mut hold, mut awaits) = (None, None, None);
        let turn = match point {
            Some(HookPoint::BeforeNode) => self.before_node(plan.current_task()),
            Some(HookPoint::BeforeCreate) => self.before_create(),
            Some(HookPoint::BeforeRemove) if self.of_fleet.is_paused() => {
                HookTurn::Hold(WAITS_TO_BE_RESUMED.to_owned())
            }
            Some(HookPoint::BeforeRemove) if self.never_ran() && !self.may_leave_without_pod(plan) => {
                HookTurn::Skip("no pod of this node has ever run".to_owned())
            }
            _ => HookTurn::Run,
        };
        match turn {
            HookTurn::Run => {}
            HookTurn::Skip(why) => skip = Some(why),
            HookTurn::Hold(why) => hold = Some(why),
            HookTurn::Await(awaited) => awaits = Some(awaited),
        }
        if self.of_fleet.is_unreadable() {
            hold = Some("waiting for a version of Windlass that can read the spec of its fleet".to_owned());
            (skip, awaits) = (None, None);
        }
        let mut spec = self.of_fleet.spec().cloned();
        if skip.is_none() && plan.current_task().is_some_and(|task| self.may_be_withdrawn(task)) {
            hold = Some("waiting for the fleet's controller to process its new spec".to_owned());
            spec = None;
        }
        let is_before = matches!(point, Some(HookPoint::BeforeNode | HookPoint::BeforeCreate));
        if skip.is_none() && is_before && fleet.is_none() {
            let id = plan.current_task().map(|task| task.id.as_str()).unwrap_or_default();
            hold = Some(format!(
                "the fleet that defines this hook no longer exists: to continue without the hook, annotate the node \
                 with windlass.dev/skip={id}"
            ));
        }
        let objects = [Some(meta), fleet.map(|fleet| &fleet.meta)];
        let objects: Vec<_> = objects.into_iter().flatten().collect();
        let scope = self.cx.hook_scope(self.job_owner(), spec, &objects, values);
        Some(HookScope { about: About::Point(point), skip, hold, awaits, ..scope })
    }

    /// True if the main container of this node was never started: its set was given up as it was created, its names
    /// are taken, its image could not be pulled, or there was no room for its pod. There is no application to notify,
    /// and the wait for `{{podIP}}` would never end.
    pub(super) fn never_ran(&self) -> bool {
        let status = &self.stored.status;
        let is_recorded = status.running().is_some()
            || !status.pod_uid.is_empty()
            || status.first_ready_at.is_some()
            || status.history.iter().any(|entry| !entry.from_hash.is_empty());
        let facts = self.scope.facts(&self.stored);
        !is_recorded && facts.pod.is_none_or(|pod| pod.never_started)
    }

    /// What happens to a `BeforeCreate` hook. It runs between the creation of the node's claims and that of its StatefulSet,
    /// which creates the pod at once.
    fn before_create(&self) -> HookTurn {
        let untimed = |sentence: String| HookTurn::Await(Awaited { sentence, is_timed: false });
        match self.scope.facts(&self.stored).set {
            StatefulSetFact::Live(_) => {
                return HookTurn::Skip("the StatefulSet of the node already exists".to_owned());
            }
            StatefulSetFact::Leaving => return untimed(SET_OF_EARLIER.to_owned()),
            StatefulSetFact::Missing => {}
        }
        if let Some(sentence) = self.scope.awaits(&self.stored) {
            return untimed(sentence);
        }
        let Some(claim) = self.scope.missing_claims(&self.stored).into_iter().next() else {
            return HookTurn::Run;
        };
        let sentence = format!("waiting for PersistentVolumeClaim {claim} to be created");
        match &self.report.unclaimed {
            Some(why) => HookTurn::Await(Awaited { sentence: format!("{sentence}: {why}"), is_timed: true }),
            None => untimed(sentence),
        }
    }

    /// What happens to a `BeforeNode` hook. A pod whose main container does not run gets no such hook, so that the fix
    /// of a
    /// broken node is not blocked. But a Job that has begun may stop that container itself.
    fn before_node(&self, task: Option<&TaskRecord>) -> HookTurn {
        let facts = self.scope.facts(&self.stored);
        let has_job = task.is_some_and(|task| TaskType::RunJob.is(task) && !task.progress.is_null());
        if !facts.main_container_runs() && !has_job {
            return HookTurn::Skip("the main container of its pod is not running".to_owned());
        }
        match self.scope.replacement() {
            Ok(Replacement::Due(_)) => HookTurn::Run,
            Ok(Replacement::Done) => HookTurn::Skip("its pod is not replaced".to_owned()),
            Ok(Replacement::NotNow(Outcome::Waiting { message, .. })) => HookTurn::Hold(message),
            // The plan's precondition no longer holds. The task that replaces the pod reports that.
            Ok(Replacement::NotNow(_)) => HookTurn::Skip("its pod is not replaced by this plan".to_owned()),
            Err(error) => HookTurn::Hold(error.to_string()),
        }
    }

    /// Skips a failed hook whose policy is Continue. Returns the event to record on the fleet.
    pub(super) fn pass_over(&self, plan: &mut Plan) -> Option<Event> {
        // Without the fleet's list nobody has taken a hook out of it: a user who deletes a fleet and retains its nodes
        // has not allowed a pod to be deleted undrained.
        self.of_fleet.spec()?;
        if engine::held_by(plan).is_some_and(|task| self.may_be_withdrawn(task)) {
            return None;
        }
        pass_over(plan, self.of_fleet.hooks(), Some(&self.stored.meta.name))
    }
}
