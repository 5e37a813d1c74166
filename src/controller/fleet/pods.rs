//! A StatefulSetRollout, whose nodes are pods: holds its StatefulSets, and carries out the plans of its pods.

use std::sync::Arc;
use std::time::Duration;

use super::context::Fleet;
use crate::api::conditions::{self, HELD, Truth};
use crate::api::names::ANNOTATION_SKIP;
use crate::api::{
    HookPoint, NodeDeploymentStatus, PodUpdate, RawPlan, Reason, StatefulSetRolloutStatus, StatefulSetStatus,
};
use crate::apply::hold::{self, Overwritten};
use crate::cache::Sighting;
use crate::controller::ReconcileError;
use crate::controller::hooks::{has_hooks, pass_over, rollout_hashes};
use crate::engine::{self, Advance, Plan, PlanState};
use crate::hooks::Values;
use crate::observe::pods::{PodFleet, plan_of, without_sets};
use crate::planner::fleet::hooks::tried;
use crate::planner::fleet::pods::{self, PodSet, is_adopted};
use crate::planner::hooks::{HookPlacement, is_of_list, point_of};
use crate::tasks::PodScope;
use crate::tasks::hooks::{About, HookScope};
use windlass_kube_port::observed::ObservedRollout;

/// How soon the controller of a StatefulSet observes a change, if it works.
const OBSERVED_WITHIN: Duration = Duration::from_secs(5);

/// The object that a fleet of pods is about.
pub(super) struct OfPods {
    /// It, as it is stored.
    pub stored: Arc<ObservedRollout>,
    /// What it selects.
    pub pods: Arc<PodFleet>,
    /// Why some of it cannot be held.
    pub refused: Option<String>,
    /// Whose hold was overwritten.
    pub overwritten: Vec<Overwritten>,
}

impl Fleet<'_> {
    /// Does the work beside the rollout's plan. Each step is independent of the others.
    pub(super) async fn apply_pods(&mut self, of: &Arc<PodFleet>) {
        let sets = of.observed(&self.scope.view);
        let rollout = self.scope.fleet.status.rollout.as_ref();
        let goes_back = rollout.is_some_and(|rollout| rollout.target() != pods::desired(&sets));
        let is_wanted = !goes_back && self.scope.fleet.status.rejected.is_none();
        for set in &sets {
            match hold::hold(&*self.cx.cluster, &self.cx.holds, set, of, is_wanted).await {
                Ok(None) => {}
                Ok(Some(overwritten)) => {
                    self.look_again(Some(overwritten.again));
                    if let Some(of) = &mut self.of_pods {
                        of.overwritten.push(overwritten);
                    }
                }
                Err(error) => self.note(error),
            }
        }
        for set in of.observed(&self.scope.view) {
            self.look_for_controller(&set);
        }
        if let Some(waits) = self.of_pods.as_ref().and_then(|of| of.absent(&sets)) {
            self.report.waits_for.get_or_insert(waits);
        }
        if let Err(error) = self.release_unselected().await {
            self.note(error);
        }
        if let Err(error) = self.advance_pods(of).await {
            self.note(error);
        }
    }

    /// Reports a StatefulSet whose controller does not observe its changes. Until it does, the desired revision is not
    /// known.
    fn look_for_controller(&mut self, of: &PodSet) {
        let (meta, what) = (&of.set.meta, Sighting::Unobserved(of.set.meta.generation));
        if of.set.is_observed() {
            return self.cx.sightings.end(&meta.uid, &what);
        }
        let elapsed = self.cx.sightings.elapsed(&meta.uid, what);
        let left = OBSERVED_WITHIN.saturating_sub(elapsed);
        if left.is_zero() {
            let sentence =
                format!("waiting for the StatefulSet controller to observe a change of {}", meta.name);
            self.report.waits_for.get_or_insert(sentence);
        } else {
            self.look_again(Some(left));
        }
    }

    /// Deletes the Jobs of plans of pods that other plans have replaced in this reconcile.
    pub(super) async fn delete_replaced_jobs(&self) -> Result<(), ReconcileError> {
        let Some(of) = &self.of_pods else { return Ok(()) };
        let now = of.pods.plans();
        for plan in of.stored.status.nodes.iter().filter_map(|update| Some((&update.name, plan_of(update)?)))
        {
            let (pod, plan) = plan;
            if now.iter().any(|other| other.pod == *pod && other.plan.id != plan.id) {
                self.delete_jobs(&plan).await?;
            }
        }
        Ok(())
    }

    /// Releases the StatefulSets that no StatefulSetRollout of the namespace selects any more.
    async fn release_unselected(&self) -> Result<(), ReconcileError> {
        let namespace = &self.scope.fleet.meta.namespace;
        for set in self.scope.view.stateful_sets.list(namespace, is_adopted) {
            if !crate::controller::rollout::is_selected(self.cx, &set.meta, "") {
                hold::release(&*self.cx.cluster, &set).await?;
            }
        }
        Ok(())
    }

    /// Carries out the plans of the pods, as far as they are stored. A move belongs to no rollout.
    async fn advance_pods(&mut self, of: &Arc<PodFleet>) -> Result<(), ReconcileError> {
        let status = &self.scope.fleet.status;
        // Without a rollout no pod moves: a lost pod is recreated at its current revision.
        let goes_on = status.rollout.is_some() && status.plan.as_ref().is_some_and(RawPlan::may_be_active);
        let sets = of.observed(&self.scope.view);
        let updates = of.updates().clone();
        let again = self.scope.facts().children.iter().filter_map(|child| child.grant.again_at).min();
        self.look_again(again.and_then(|again| (again - self.now).to_std().ok()));
        let mut kept = Vec::new();
        for mut update in updates {
            let is_move = !update.node_name.is_empty();
            if !sets.iter().any(|set| set.has(&update.name)) {
                if let Some(plan) = plan_of(&update) {
                    self.delete_jobs(&plan).await?;
                }
                continue;
            }
            let Some(mut plan) = plan_of(&update).filter(Plan::is_active) else {
                kept.extend((is_move && update.plan.is_none()).then_some(update));
                continue;
            };
            if !(goes_on || is_move) {
                self.delete_jobs(&plan).await?;
                continue;
            }
            let goes_on = self.advance_pod(of, &update, &mut plan).await?;
            update.plan = goes_on.then(|| RawPlan::of(&plan));
            // A pod that was scheduled to the same machine again is not moved a second time.
            let place = self.scope.cached_pod(&update.name);
            let has_returned = is_move && place.is_some_and(|pod| pod.machine == update.node_name);
            if goes_on || (has_returned && plan.state == PlanState::Complete) {
                kept.push(update);
            }
        }
        *of.updates() = kept;
        Ok(())
    }

    /// Carries out the plan of a pod. Returns false if it is over.
    async fn advance_pod(
        &mut self,
        of: &Arc<PodFleet>,
        update: &PodUpdate,
        plan: &mut Plan,
    ) -> Result<bool, ReconcileError> {
        self.edit(plan);
        let scope = PodScope { fleet: self.scope.clone(), pods: of.clone(), update: update.clone() };
        let env = self.cx.env.layer().with(scope);
        let env = match self.hooks_of_pod(of, update, plan) {
            Some(hooks) => env.with(hooks).with(self.cx.deleted_jobs.clone()),
            None => env,
        };
        let deadline = self.scope.spec.update_strategy.progress_deadline_seconds;
        let advance = engine::advance(plan, &self.cx.registry, &env, self.now, deadline).await;
        let hooks = &self.scope.spec.update_strategy.hooks;
        if let Some(event) = pass_over(plan, hooks, Some(&update.name)) {
            self.record(&event);
        }
        match advance {
            Advance::Waiting { recheck_after } => {
                self.look_again(recheck_after);
                Ok(true)
            }
            Advance::Checkpoint | Advance::Held => Ok(true),
            Advance::Invalidated { .. } => {
                self.delete_jobs(plan).await?;
                Ok(false)
            }
            Advance::Ended => {
                if plan.state == PlanState::Failed {
                    let note = format!("{}: {}", update.name, plan.failure);
                    self.warn(Reason::RolloutFailed, &plan.id, note);
                }
                Ok(false)
            }
        }
    }

    /// Brings a pod's plan in line with the list of hooks, and with what a person asks of its tasks.
    fn edit(&self, plan: &mut Plan) {
        let (meta, status) = (&self.scope.fleet.meta, &self.scope.fleet.status);
        let retried = status.hook_retry.as_ref().map(|retry| retry.tasks.as_slice()).unwrap_or_default();
        if engine::held_by(plan).is_some_and(|task| retried.contains(&tried(task))) {
            engine::try_again(plan);
        }
        if let Some(id) = meta.annotation(ANNOTATION_SKIP)
            && plan.tasks.iter().any(|task| task.id == id && !task.state.is_over())
            && let Err(refused) = engine::skip(plan, id, &self.cx.registry, self.now)
        {
            self.warn(Reason::SkipRefused, id, refused.to_string());
        }
        let hooks = &self.scope.spec.update_strategy.hooks;
        let Ok(recipe) = self.cx.registry.recipe(&plan.recipe) else { return };
        if hooks.is_empty() && !plan.tasks.iter().any(is_of_list) {
            return;
        }
        let points = vec![HookPoint::BeforeNode, HookPoint::AfterNode];
        HookPlacement { hooks, points, ..HookPlacement::default() }.bring_to(plan, &recipe.tasks);
    }

    /// The scope of the hooks of a pod's plan; `None` if it has none.
    fn hooks_of_pod(&self, of: &PodFleet, update: &PodUpdate, plan: &Plan) -> Option<HookScope> {
        if !has_hooks(plan) {
            return None;
        }
        let fleet = &self.scope.fleet;
        let set = of.observed(&self.scope.view).into_iter().find(|set| set.has(&update.name))?;
        let pod = self.scope.cached_pod(&update.name);
        let facts = self.scope.facts();
        let child = facts.children.iter().find(|child| child.name == *update.name)?;
        let (from, target) = rollout_hashes(&fleet.status);
        let values = Values {
            fleet: Some(fleet.meta.name.clone()),
            namespace: Some(fleet.meta.namespace.clone()),
            node: Some(update.name.clone()),
            ordinal: update.name.rsplit('-').next().map(str::to_owned),
            pod: Some(update.name.clone()),
            pod_ip: pod.as_ref().map(|pod| pod.ip.clone()).filter(|ip| !ip.is_empty()),
            image: set.set.images.first().map(|(_, image)| image.clone()),
            from_hash: Some(from),
            target_hash: Some(target),
            set: Some(set.set.meta.name.clone()),
            ..Values::default()
        };
        let point = plan.current_task().and_then(point_of);
        let is_before = point == Some(HookPoint::BeforeNode);
        let skip = if is_before && !child.main_container_runs() {
            Some("the main container of its pod is not running".to_owned())
        } else if is_before && pod.is_some_and(|pod| pod.meta.uid != update.pod_uid) {
            Some("its pod is not replaced".to_owned())
        } else {
            None
        };
        let spec = self.scope.spec.clone();
        let scope = self.cx.hook_scope(self.job_owner(), Some(spec), &[&fleet.meta], values);
        Some(HookScope { about: About::Point(point), skip, ..scope })
    }

    /// Requeues the object after this time, or earlier.
    pub(super) fn look_again(&mut self, after: Option<Duration>) {
        self.report.look_again = self.report.look_again.into_iter().chain(after).min();
    }
}

impl OfPods {
    /// The status to write.
    pub fn status(&self, mut rollout: NodeDeploymentStatus, fleet: &Fleet<'_>) -> StatefulSetRolloutStatus {
        without_sets(&mut rollout);
        let sets = self.pods.observed(&fleet.scope.view);
        let (truth, reason, message) = self.held(&sets);
        let generation = fleet.scope.fleet.meta.generation;
        conditions::set(&mut rollout.conditions, HELD, truth, reason, &message, generation, fleet.now);
        let missing = self.pods.missing.iter();
        let missing =
            missing.map(|name| StatefulSetStatus { name: name.clone(), ..StatefulSetStatus::default() });
        StatefulSetRolloutStatus {
            rollout,
            stateful_sets: sets
                .iter()
                .map(|of| of.status(self.pods.is_ours(&of.set)))
                .chain(missing)
                .collect(),
            nodes: self.pods.updates().clone(),
        }
    }

    /// Which StatefulSets do not exist, in a sentence; `None` if all do. `sets`: those that their controller has
    /// observed.
    fn absent(&self, sets: &[PodSet]) -> Option<String> {
        match self.pods.missing.first() {
            Some(name) => Some(format!(
                "{name}: no StatefulSet with this name exists yet; Windlass holds it once it is created"
            )),
            None if sets.is_empty() && self.pods.sets.is_empty() => {
                Some("no StatefulSet matches spec.statefulSets.selector".to_owned())
            }
            None => None,
        }
    }

    fn held(&self, sets: &[PodSet]) -> (Truth, Reason, String) {
        if let Some(overwritten) = self.overwritten.first() {
            return (Truth::False, Reason::StrategyOverwritten, overwritten.sentence.clone());
        }
        if let Some(refused) = &self.refused {
            return (Truth::False, Reason::InvalidSpec, refused.clone());
        }
        if let Some(message) = self.absent(sets) {
            return (Truth::False, Reason::StatefulSetMissing, message);
        }
        if let Some(key) = self.pods.sets.first().filter(|_| sets.is_empty()) {
            let message = format!("{}: the StatefulSet controller has not observed it yet", key.name);
            return (Truth::Unknown, Reason::Applying, message);
        }
        match sets.iter().find(|set| !self.pods.is_ours(&set.set)) {
            Some(set) => {
                let message =
                    format!("{}: Windlass has not written its update strategy yet", set.set.meta.name);
                (Truth::Unknown, Reason::Applying, message)
            }
            None => (Truth::True, Reason::Held, String::new()),
        }
    }

    /// True if a plan of a pod began, ended, or came to another task.
    pub fn has_moved(&self, after: &[PodUpdate]) -> bool {
        let gist = |updates: &[PodUpdate]| -> Vec<_> {
            let of = |update: &PodUpdate| {
                let plan = plan_of(update);
                let tasks = plan.iter().flat_map(|plan| &plan.tasks);
                let tasks: Vec<_> =
                    tasks.map(|task| (task.state, task.progress.clone(), task.attempt)).collect();
                (update.name.clone(), plan.as_ref().map(|plan| plan.id.clone()), tasks)
            };
            updates.iter().map(of).collect()
        };
        gist(&self.stored.status.nodes) != gist(after)
    }
}
