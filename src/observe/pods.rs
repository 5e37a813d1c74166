//! Observes the StatefulSets of a StatefulSetRollout, and their pods, as a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::FleetScope;
use crate::api::stateful_set_rollout::MAX_POD_UPDATES;
use crate::api::{
    GrantedBy, Groups, HookPoint, NodeDeploymentSpec, NodeDeploymentStatus, PodMove, PodTemplateHash,
    PodUpdate, RestartTime, RolloutHash, StatefulSetStatus,
};
use crate::cache::Sighting;
use crate::engine::{Plan, PlanSeed, Recipe};
use crate::planner::fleet::drain::MoveRequest;
use crate::planner::fleet::facts::{Findings, ServiceFacts};
use crate::planner::fleet::pods::{self, Mode, PodPlan, PodSet, PodsInput};
use crate::planner::fleet::{Cause, Clause, FleetFacts, FleetKind, Grant};
use crate::planner::hooks::HookPlacement;
use windlass_kube_port::observed::{ObservedFleet, ObservedPod, ObservedRollout, ObservedStatefulSet};
use windlass_kube_port::{Key, View};

/// The recipes of the plans of pods, without hooks.
#[derive(Debug)]
pub(crate) struct PodRecipes {
    /// Of a pod that is updated.
    pub update: Recipe,
    /// Of a pod that is moved to another machine.
    pub move_: Recipe,
}

/// What a StatefulSetRollout selects, and the pods that it updates.
#[derive(Debug)]
pub(crate) struct PodFleet {
    /// The selected StatefulSets that exist and may be held, in the order in which they are updated.
    pub sets: Vec<Key>,
    /// The selected names that do not exist.
    pub missing: Vec<String>,
    /// What the status has recorded of them.
    pub recorded: Vec<StatefulSetStatus>,
    /// Whether they are updated one at a time.
    pub groups: Groups,
    /// The plans of a pod, without hooks.
    pub recipes: PodRecipes,
    /// The pods that are being updated. The first of them are in the stored status, see [`PodFleet::stored`].
    updates: Mutex<Vec<PodUpdate>>,
    /// The IDs of the plans that the stored status has: only they may act.
    stored: BTreeSet<String>,
}

impl PodFleet {
    pub fn new(
        rollout: &ObservedRollout,
        sets: Vec<Key>,
        missing: Vec<String>,
        groups: Groups,
        recipes: PodRecipes,
    ) -> Self {
        let updates = rollout.status.nodes.clone();
        let stored = updates.iter().filter_map(plan_of).map(|plan| plan.id.to_string()).collect();
        Self {
            sets,
            missing,
            recorded: rollout.status.stateful_sets.clone(),
            groups,
            recipes,
            updates: Mutex::new(updates),
            stored,
        }
    }

    /// The pods that are being updated.
    pub fn updates(&self) -> MutexGuard<'_, Vec<PodUpdate>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the stored status has this plan, so that it may act.
    pub fn is_stored(&self, plan: &Plan) -> bool {
        self.stored.contains(plan.id.as_str())
    }

    /// For each StatefulSet, the group of its pods in the cache, and their label selector.
    pub fn lists(&self, view: &View) -> Vec<(String, String)> {
        let list = |of: PodSet| {
            let selector = of.set.external.as_deref().map(|external| external.selector.clone());
            (of.set.meta.uid.clone(), selector.unwrap_or_default())
        };
        self.observed(view).into_iter().map(list).collect()
    }

    /// The plans of the pods that are being updated.
    pub fn plans(&self) -> Vec<PodPlan> {
        let updates = self.updates();
        let plan = |update: &PodUpdate| Some(PodPlan { pod: update.name.clone(), plan: plan_of(update)? });
        updates.iter().filter_map(plan).collect()
    }

    /// The pods that are moved, or were moved off machines that are being drained, by name.
    pub fn moves(&self) -> BTreeMap<String, PodMove> {
        let updates = self.updates();
        updates.iter().filter_map(|update| Some((update.name.clone(), update.as_move()?))).collect()
    }

    /// Those of these plans that may act.
    pub fn stored_plans(&self) -> Vec<PodPlan> {
        self.plans().into_iter().filter(|of| self.is_stored(&of.plan)).collect()
    }

    /// True if the update strategy of a StatefulSet is one that Windlass wrote. One that had OnDelete before it was
    /// adopted
    /// is held like any other.
    pub fn is_ours(&self, set: &ObservedStatefulSet) -> bool {
        match Mode::of(set) {
            Mode::Hold => true,
            Mode::Window => pods::is_adopted(set) || self.was_held(set),
            Mode::Native => false,
        }
    }

    /// True if the status says that a StatefulSet was held.
    pub fn was_held(&self, set: &ObservedStatefulSet) -> bool {
        self.recorded.iter().any(|known| known.uid == set.meta.uid && known.held)
    }

    /// The selected StatefulSets, and their pods, as the caches have them now.
    pub fn observed(&self, view: &View) -> Vec<PodSet> {
        let observe = |key: &Key| {
            let set = view.stateful_sets.get(key)?;
            let known = self.recorded.iter().find(|known| known.uid == set.meta.uid);
            let known = known.map(|known| known.update_revision.clone()).filter(|known| !known.is_empty());
            let update_revision =
                known.filter(|_| !set.is_observed()).unwrap_or_else(|| set.update_revision.clone());
            let pods = view.pods.group(&set.meta.namespace, &set.meta.uid);
            let last = |uid: &str| view.refusals.last(uid);
            let of_pod = |pod: &Arc<ObservedPod>| Some((pod.meta.uid.clone(), last(&pod.meta.uid)?.note));
            let warnings = pods.iter().filter_map(of_pod).collect();
            let refusal = last(&set.meta.uid).map(|told| (told.at, told.note));
            Some(PodSet { set, update_revision, pods, warnings, refusal, missing: BTreeMap::new() })
        };
        // Without a revision, its controller has not observed it at all.
        self.sets.iter().filter_map(observe).filter(|set| !set.update_revision.is_empty()).collect()
    }
}

/// The plan of a pod that is being updated, if it can be parsed.
pub(crate) fn plan_of(update: &PodUpdate) -> Option<Plan> {
    update.plan.as_ref().and_then(|plan| plan.parse().ok())
}

/// A StatefulSetRollout as a fleet whose nodes are pods: its spec, and its status with what the StatefulSets show.
pub(crate) fn as_fleet(
    rollout: &ObservedRollout,
    pods: &PodFleet,
    view: &View,
) -> Option<Arc<ObservedFleet>> {
    let spec = rollout.spec.as_ref().ok()?;
    let sets = pods.observed(view);
    let replicas = sets.iter().map(|of| of.set.replicas).sum::<i64>();
    let mut spec = spec.as_fleet(i32::try_from(replicas).unwrap_or(i32::MAX));
    set_image(&mut spec, sets.first().map(|of| &*of.set));
    let min_ready = sets.iter().filter_map(|of| of.set.external.as_deref()).map(|of| of.min_ready_seconds);
    spec.min_ready_seconds = min_ready.max().unwrap_or_default();
    let mut status = rollout.status.rollout.clone();
    // The last completed revision is not recorded: the StatefulSets have it.
    status.last_completed_rollout_hash =
        if sets.is_empty() { String::new() } else { pods::completed(&sets).to_string() };
    Some(Arc::new(ObservedFleet {
        meta: rollout.meta.clone(),
        spec: Ok(Arc::new(spec)),
        status: Box::new(status),
        unreadable: rollout.unreadable.clone(),
    }))
}

/// Hooks may ask for the main container's image.
fn set_image(spec: &mut NodeDeploymentSpec, set: Option<&ObservedStatefulSet>) {
    let Some((name, image)) = set.and_then(|set| set.images.first()) else { return };
    let template = json!({"spec": {"containers": [{"name": name, "image": image}]}});
    spec.template.spec.pod_template = template.into();
}

/// Removes from a status what only a fleet of nodes has.
pub(crate) fn without_sets(status: &mut NodeDeploymentStatus) {
    status.active_set.clear();
    status.selector.clear();
    status.build_id.clear();
    if let Some(rejected) = &mut status.rejected {
        rejected.build_id.clear();
    }
    status.deletion_policy = None;
    status.volume_claim_retention = None;
}

/// What the tasks of a pod's plan work with.
#[derive(Clone)]
pub struct PodScope {
    /// The StatefulSetRollout.
    pub fleet: FleetScope,
    /// What it selects.
    pub(crate) pods: Arc<PodFleet>,
    /// The pod that is being updated.
    pub update: PodUpdate,
}

impl FleetScope {
    /// The facts of a fleet whose nodes are pods.
    pub(super) fn observe_pods(&self, of: &PodFleet) -> FleetFacts {
        let mut sets = of.observed(&self.view);
        for set in &mut sets {
            set.missing = self.missing(set);
        }
        let plans = of.plans();
        let target = self.fleet.status.rollout.as_ref().map(crate::api::Rollout::target);
        let requested = self.requested();
        let rejected = self.fleet.status.rejected.clone().filter(|rejected| requested == *rejected.hash);
        let domain =
            |ordinal: i32, name: &str| self.domain_at(ordinal, name, self.cached_pod(name).as_deref());
        let pods = pods::observe(&PodsInput {
            sets: &sets,
            plans: &plans,
            moves: &of.moves(),
            draining: &self.view.draining(),
            domain: &domain,
            last: self.spec.last(),
            target: target.as_ref(),
            rejected: rejected.as_ref(),
            began: self.fleet.status.rollout.as_ref().map(|rollout| rollout.started_at),
            restart: self.active_restart(),
            unconverged: self.fleet.status.rollout.as_ref().map_or(&[], |rollout| &rollout.unconverged),
            deadline_seconds: self.spec.update_strategy.progress_deadline_seconds,
            now: self.now,
        });
        let ending = pods.shutting_down.iter().map(|name| (name.clone(), domain(0, name)));
        let ending_domains = ending.filter(|(_, domain)| domain.name().is_some()).collect();
        let mut spec = self.spec_facts();
        spec.groups = of.groups;
        FleetFacts {
            kind: FleetKind::Pods,
            groups: pods.groups,
            spec,
            terminating: self.fleet.meta.terminating,
            requests: self.request_facts(&requested),
            record: self.record_facts(&requested),
            rollout: self.rollout_facts(),
            findings: Findings { blocker: self.blocker.clone(), ..Findings::default() },
            service: ServiceFacts::default(),
            requested,
            set: crate::api::SetName::FIRST,
            sets: BTreeMap::new(),
            children: pods.children,
            conflicts: Vec::new(),
            ending_domains,
            shutting_down: pods.shutting_down,
            ending: pods.ending,
            renderings: pods.renderings,
        }
    }

    /// For how long each pod of a StatefulSet has been missing, as far as this process knows.
    fn missing(&self, of: &PodSet) -> BTreeMap<String, TimeDelta> {
        let mut missing = BTreeMap::new();
        for name in of.names() {
            let key = format!("{}/{name}", of.set.meta.uid);
            if of.pod(&name).is_some() {
                self.sightings.end(&key, &Sighting::NoPod);
            } else {
                let elapsed = self.sightings.elapsed(&key, Sighting::NoPod);
                missing.insert(name, TimeDelta::from_std(elapsed).unwrap_or_default());
            }
        }
        missing
    }

    /// The restart that the active rollout carries out, and since when. A pod does not say what it was restarted for,
    /// and the
    /// requested time may be in the future: so it counts from when it was accepted, and no longer than the rollout
    /// lasts.
    fn active_restart(&self) -> Option<(&RestartTime, DateTime<Utc>)> {
        let rollout = self.fleet.status.rollout.as_ref()?;
        let is_restart = rollout.cause == Cause::RestartRequested.as_ref();
        let restart = self.restarted_at.as_ref().filter(|_| is_restart)?;
        let asked = restart.as_str().parse::<DateTime<Utc>>().ok().filter(|asked| *asked <= self.now);
        Some((restart, asked.map_or(rollout.started_at, |asked| asked.max(rollout.started_at))))
    }

    /// The rollout hash of the update revisions of the selected StatefulSets.
    pub(super) fn desired_revisions(&self, of: &PodFleet) -> RolloutHash {
        pods::desired(&of.observed(&self.view))
    }

    /// Gives pods a plan each, which begins to act once the status with it is stored.
    pub(crate) fn plan_pods(&self, of: &PodFleet, grants: Vec<Grant>, by: GrantedBy<'_>) {
        let GrantedBy::Plan(rollout) = by else { return };
        for grant in grants {
            let pod = self.cached_pod(grant.name.as_str());
            let pod_uid = pod.map(|pod| pod.meta.uid.clone()).unwrap_or_default();
            let mut points = vec![HookPoint::AfterNode];
            // Without a pod, or if it is at the target, there is nothing to prepare.
            let is_replaced = !pod_uid.is_empty() && grant.clause != Clause::RunsTarget;
            points.extend(is_replaced.then_some(HookPoint::BeforeNode));
            let update = PodUpdate { name: grant.name.to_string(), pod_uid, ..PodUpdate::default() };
            self.plan_pod(of, update, (&of.recipes.update, points), &grant.hash, rollout.as_str());
        }
    }

    /// Gives pods that leave their machines a plan each.
    pub(crate) fn plan_moves(&self, of: &PodFleet, facts: &FleetFacts, moves: Vec<MoveRequest>) {
        for MoveRequest { name, pod } in moves {
            let child = facts.children.iter().find(|child| child.name == name);
            let Some(hash) = child.and_then(|child| child.pod.hash.as_ref()) else { continue };
            let Some(PodMove { pod_uid, node_name }) = pod else {
                of.updates().retain(|update| name != *update.name || update.plan.is_some());
                continue;
            };
            let points = vec![HookPoint::BeforeNode, HookPoint::AfterNode];
            let update =
                PodUpdate { name: name.to_string(), pod_uid, node_name: node_name.clone(), plan: None };
            self.plan_pod(of, update, (&of.recipes.move_, points), hash, &node_name);
        }
    }

    fn plan_pod(
        &self,
        of: &PodFleet,
        update: PodUpdate,
        (recipe, points): (&Recipe, Vec<HookPoint>),
        target: &PodTemplateHash,
        why: &str,
    ) {
        let mut updates = of.updates();
        updates.retain(|known| known.name != update.name);
        if updates.iter().filter(|update| update.plan.is_some()).count() >= MAX_POD_UPDATES {
            return;
        }
        let hooks =
            HookPlacement { hooks: &self.spec.update_strategy.hooks, points, ..HookPlacement::default() };
        let plan = hooks.in_recipe(recipe).plan(PlanSeed {
            uid: &self.fleet.meta.uid,
            target_hash: target.as_str(),
            now: self.now,
            attempt: 0,
            disambiguator: &format!("{why}/{}/{}", update.name, update.pod_uid),
        });
        updates.push(PodUpdate { plan: Some(crate::api::RawPlan::of(&plan)), ..update });
    }

    /// A pod, as the cache has it.
    pub(crate) fn cached_pod(&self, name: &str) -> Option<Arc<ObservedPod>> {
        self.view.pods.get(&Key::new(&self.fleet.meta.namespace, name))
    }
}
