//! Repairs what a fleet's status records about the set that serves, if that was lost or does not fit what is observed.
//! The repair comes before any decision, so that no decision is based on a wrong record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FleetScope;
use super::is_switched;
use crate::api::conditions::{self, ROLLOUT_IN_PROGRESS, UP_TO_DATE};
use crate::api::ids::field;
use crate::api::names::{ANNOTATION_SWITCHED_TO, place_of};
use crate::api::{
    BuildId, NodeDeploymentStatus, Reason, Rollout, RolloutHash, SameContent, SetName, Stage, StrategyType,
};
use crate::cluster::Key;
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::engine::Plan;
use crate::planner::fleet::sets::lost::{Traces, promotes, promotion};
use crate::planner::fleet::sets::naming::first_choice;
use crate::planner::fleet::sets::serving::RolloutSets;
use crate::planner::fleet::sets::stage::{has_promoted, stage_before_return};
use crate::planner::fleet::status::rollout_target_of;
use crate::planner::fleet::{Cause, Strategy};
use crate::revision::revision_name;

impl FleetScope {
    /// The same fleet with a status that fits what is observed. If nothing shows which set serves, the record of that
    /// set stays as it is.
    #[must_use]
    pub fn repair_status(mut self) -> Self {
        if let Some(status) = self.with_whole_plan() {
            self.set_status(status);
        }
        if let Some(active_build_id) = self.lost_build_id() {
            let active_build_id = active_build_id.into();
            self.set_status(NodeDeploymentStatus { active_build_id, ..(*self.fleet.status).clone() });
        }
        if let Some(status) = self.with_whole_rollout() {
            self.rollout_target = rollout_target_of(&status);
            self.set_status(status);
        }
        // `serving` below depends on the rollout.
        let found = || {
            let stage = || self.not_yet_retiring().or_else(|| self.already_retiring());
            self.lost_promotion().or_else(stage).or_else(|| self.lost_rollout())
        };
        if let Some(rollout) = found() {
            let status = NodeDeploymentStatus { rollout: Some(rollout), ..(*self.fleet.status).clone() };
            self.rollout_target = rollout_target_of(&status);
            self.set_status(status);
        }
        if let Some(status) = self.with_rejected_target() {
            self.set_status(status);
        }
        let Ok(set) = self.serving() else { return self };
        if let Some(status) = self.record_of(&set) {
            self.set_status(status);
        }
        self
    }

    /// Records whether the spec has the content of a revision and is only written otherwise.
    pub fn record_same_content(&mut self, same_content: Option<SameContent>) {
        if self.fleet.status.same_content != same_content {
            self.set_status(NodeDeploymentStatus { same_content, ..(*self.fleet.status).clone() });
            // What was computed was of another target.
            self.cache = Arc::default();
        }
    }

    fn set_status(&mut self, status: NodeDeploymentStatus) {
        let fleet = ObservedFleet { status: Box::new(status), ..(*self.fleet).clone() };
        self.fleet = Arc::new(fleet);
    }

    /// Recovers a lost `activeBuildID`: the candidate with which a kept revision or a node has the rollout hash that
    /// last completed. Without the build ID, the active set would be retired as an unknown set.
    fn lost_build_id(&self) -> Option<BuildId> {
        let status = &self.fleet.status;
        let completed = status.last_completed()?;
        let of_rollout = status.rollout.as_ref().and_then(Rollout::build_id);
        let ids: Vec<BuildId> = self.spec.build_id().into_iter().chain(of_rollout).collect();
        if !status.active_build_id.is_empty() || ids.is_empty() {
            return None;
        }
        let mut kept = self.view.revisions.group(&self.fleet.meta.namespace, &self.fleet.meta.uid);
        kept.retain(|revision| revision.meta.is_controlled_by(&self.fleet.meta.uid));
        let is_kept = |id: &BuildId| kept.iter().any(|r| self.rollout_hash_of(r, Some(id)) == completed);
        let is_run =
            |id: &BuildId| self.children().iter().any(|node| self.spec_hash(node, Some(id)) == completed);
        ids.into_iter().find(|id| is_kept(id) || is_run(id))
    }

    /// Recovers the rollout of a promotion from its plan, its nodes and the fleet's Service, if the status has lost it.
    fn lost_promotion(&self) -> Option<Rollout> {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let plan = status.plan.as_ref().filter(|_| status.rollout.is_none())?.parse().ok()?;
        let strategy = Strategy::of_recipe(&plan.recipe).filter(|strategy| strategy.makes_set())?;
        let rejected = status.rejected.as_ref().is_some_and(|r| plan.id == *r.plan_id);
        if rejected || plan.target_hash == status.last_completed_rollout_hash {
            return None;
        }
        // Under `Immediately` the set that the status names may no longer exist.
        let named = status.active_set().filter(|_| strategy == Strategy::BlueGreenImmediate);
        let incumbent = named.or_else(|| self.serving().ok())?;
        let promotion = promotion(&plan, &self.traces(&plan, Some(incumbent)))?;
        let said = conditions::find(&status.conditions, ROLLOUT_IN_PROGRESS).map(|c| c.reason.as_str());
        let cause = said.and_then(|cause| cause.parse().ok()).unwrap_or(Cause::TemplateChanged);
        Some(Rollout {
            strategy: promotion.strategy.api_name().to_owned(),
            recipe: plan.recipe.clone(),
            target_revision: revision_name(&meta.name, &meta.uid, &promotion.target).into(),
            target_hash: promotion.target.into(),
            cause: cause.to_string(),
            stage: promotion.stage,
            incumbent_set: promotion.incumbent.map(String::from).unwrap_or_default(),
            entrant_set: promotion.entrant.into(),
            build_id: field(promotion.build_id.as_ref()).to_owned(),
            from_hash: status.last_completed_rollout_hash.clone(),
            halt_height: promotion.halt_height,
            ..Rollout::begun(self.now)
        })
    }

    /// The rollout with its stage corrected, if a person has set the stage to Retiring. When Windlass writes that
    /// stage, the plan has moved traffic, and the same patch records that the target has completed. Either one proves
    /// the stage.
    fn not_yet_retiring(&self) -> Option<Rollout> {
        let status = &self.fleet.status;
        let rollout = status.rollout.as_ref().filter(|r| r.stage == Stage::Retiring)?;
        let plan = status.plan.as_ref()?.parse().ok()?;
        let strategy = Strategy::of_recipe(&plan.recipe).filter(|strategy| strategy.makes_set())?;
        let is_true = has_promoted(&plan) || status.last_completed_rollout_hash == rollout.target_hash;
        if is_true || plan.target_hash != rollout.target_hash {
            return None;
        }
        let traces = Traces {
            // What the rollout still records counts as much as what is observed.
            is_said: rollout.forced || rollout.halt_height > 0 || self.says_promoting(),
            ..self.traces(&plan, rollout.incumbent())
        };
        // Only a promotion keeps its rollout after its plan has failed.
        let is_past = !plan.is_active() || promotes(&plan, strategy, &traces, rollout.entrant().as_ref());
        let stage =
            if is_past { Stage::Promoting } else { stage_before_return(&plan, strategy.first_stage()) };
        Some(Rollout { stage, ..rollout.clone() })
    }

    /// The rollout with its stage corrected, if that was lost after traffic had moved: the patch that writes Retiring
    /// also records the new set as the active one, and its target as completed.
    fn already_retiring(&self) -> Option<Rollout> {
        let status = &self.fleet.status;
        let rollout = status.rollout.as_ref().filter(|r| r.stage != Stage::Retiring)?;
        let has_moved = rollout.entrant().is_some_and(|entrant| status.active_set() == Some(entrant))
            && status.last_completed_rollout_hash == rollout.target_hash;
        has_moved.then(|| Rollout { stage: Stage::Retiring, ..rollout.clone() })
    }

    fn says_promoting(&self) -> bool {
        let says = conditions::find(&self.fleet.status.conditions, UP_TO_DATE);
        says.is_some_and(|c| c.reason == Reason::Promoting.as_ref())
    }

    pub(super) fn traces(&self, plan: &Plan, incumbent: Option<SetName>) -> Traces {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let mut sets = self.nodes_by_set();
        let incumbents = incumbent.as_ref().and_then(|set| sets.remove(set)).unwrap_or_default();
        sets.retain(|set, _| !status.retiring.iter().any(|r| *set == *r.set));
        let ids = [None, self.spec.build_id(), BuildId::recorded(status.build_id.as_str())];
        let holder = |(set, nodes): (SetName, Vec<Arc<ObservedNode>>)| {
            let holds = |id: &&Option<BuildId>| {
                let held = |node: &Arc<ObservedNode>| self.spec_hash(node, id.as_ref());
                nodes.iter().any(|node| held(node).is_some_and(|held| held == *plan.target_hash))
            };
            Some((set, ids.iter().find(holds)?.clone()))
        };
        // A later plan to the same target continues one that failed or whose result no longer held.
        let before = status.history.iter().filter(|h| h.target_hash == plan.target_hash);
        let plans: Vec<&str> = before.map(|h| h.plan_id.as_str()).chain([plan.id.as_str()]).collect();
        let is_asked = |task: &str| task.rsplit_once('-').is_some_and(|(id, _)| plans.contains(&id));
        let specs = incumbents.iter().filter_map(|node| node.spec.as_ref().ok());
        let asked = specs.filter(|spec| is_asked(&spec.halt_task_id)).map(|spec| spec.halt_height);
        let service = self.view.services.get(&meta.key()).filter(|service| self.owns(&service.meta));
        let switched = service.as_ref().and_then(|s| s.meta.annotation(ANNOTATION_SWITCHED_TO));
        let switched = switched.and_then(SetName::recorded);
        Traces {
            asked: asked.filter(|height| *height > 0).collect(),
            wanted_height: self.spec.halt_height(),
            is_said: self.says_promoting(),
            switched_to: switched.filter(|set| service.as_ref().is_some_and(|s| is_switched(s, set))),
            holders: sets.into_iter().filter_map(holder).collect(),
            incumbent,
        }
    }

    fn record_of(&self, set: &SetName) -> Option<NodeDeploymentStatus> {
        let is_other = self.fleet.status.active_set().is_some_and(|recorded| recorded != *set);
        if !is_other && !self.fleet.status.last_completed_rollout_hash.is_empty() {
            return None;
        }
        let mut status = (*self.fleet.status).clone();
        let pair = self.set_rollout().as_ref().and_then(RolloutSets::of);
        if is_other {
            status.active_set = set.to_string();
            // These fields describe the recorded set, which does not serve. They are kept only if the rollout confirms
            // that `set` serves.
            if pair.as_ref().is_none_or(|pair| pair.serves != *set) {
                status.active_build_id.clear();
                status.last_completed_rollout_hash.clear();
                status.current_revision.clear();
            }
        }
        if status.last_completed_rollout_hash.is_empty() {
            self.record_what_completed(&mut status, set, is_other);
        }
        (status != *self.fleet.status).then_some(status)
    }

    /// Records what last completed on the set that serves: from the rollout under way, the current revision, or the
    /// nodes' specs.
    fn record_what_completed(&self, status: &mut NodeDeploymentStatus, set: &SetName, is_other: bool) {
        let meta = &self.fleet.meta;
        let rollout = status.rollout.as_ref();
        let completed = match rollout {
            Some(r) if r.stage == Stage::Retiring && *set == *r.entrant_set => {
                Some((r.target(), r.build_id()))
            }
            Some(r) if *set == *r.incumbent_set && !r.from_hash.is_empty() => {
                Some((RolloutHash::recorded_or_lost(r.from_hash.as_str()), status.active_build_id()))
            }
            // Updated nodes already run the target, so under InPlace only what was recorded shows what ran before.
            _ if let Some(named) = self.of_current_revision(status) => Some(named),
            Some(r) if r.entrant_set.is_empty() && !r.from_hash.is_empty() => {
                Some((RolloutHash::recorded_or_lost(r.from_hash.as_str()), status.active_build_id()))
            }
            Some(r) if gives_way(r, set) => self.run_by(status, set, is_other),
            Some(_) => None,
            None => self.run_by(status, set, is_other).or_else(|| self.held_below_partition(status, set)),
        };
        if let Some((hash, build_id)) = completed {
            status.current_revision = revision_name(&meta.name, &meta.uid, &hash).into();
            status.last_completed_rollout_hash = hash.into();
            field(build_id.as_ref()).clone_into(&mut status.active_build_id);
        }
    }

    /// The rollout hash of the revision that the status still names as the current one, and the build ID of that hash.
    fn of_current_revision(&self, status: &NodeDeploymentStatus) -> Option<(RolloutHash, Option<BuildId>)> {
        let meta = &self.fleet.meta;
        let revision = self.view.revisions.get(&Key::new(&meta.namespace, &status.current_revision))?;
        let ids = self.build_ids().into_iter().filter(|_| revision.meta.is_controlled_by(&meta.uid));
        let mut hashes = ids.filter_map(|id| Some((self.rollout_hash_of(&revision, id.as_ref())?, id)));
        hashes.find(|(hash, _)| revision_name(&meta.name, &meta.uid, hash) == *status.current_revision)
    }

    /// The rollout hash that a set's nodes hold, if it is not the desired one, and the build ID under which the nodes
    /// were created. `None` if changes are applied to the nodes in place: under InPlace, and before the first creation
    /// was ever complete.
    fn run_by(
        &self,
        status: &NodeDeploymentStatus,
        set: &SetName,
        is_other: bool,
    ) -> Option<(RolloutHash, Option<BuildId>)> {
        let by_set = self.spec.update_strategy.strategy();
        if !matches!(by_set, Some(StrategyType::BlueGreen | StrategyType::HardFork)) {
            return None;
        }
        let mut nodes = self.nodes_below(self.spec.replicas, set);
        let all = nodes.len();
        nodes.retain(|node| self.has_served(node));
        let long_enough = nodes.iter().all(|node| self.was_available(node));
        let build_id = self.made_under(status, set, &nodes);
        let mut counts: BTreeMap<RolloutHash, usize> = BTreeMap::new();
        for held in nodes.iter().filter_map(|node| self.spec_hash(node, build_id.as_ref())) {
            *counts.entry(held).or_default() += 1;
        }
        // During the first creation of a fleet the status has a requested hash and names the first set as active. If
        // not, or if another set is to take over, it was lost.
        let lost = is_other
            || status.rollout.as_ref().is_some_and(|rollout| gives_way(rollout, set))
            || status.active_set.is_empty()
            || status.requested_rollout_hash.is_empty()
            || *set != SetName::FIRST;
        let whole = long_enough && all == nodes.len() && i32::try_from(all) == Ok(self.spec.replicas);
        let whole = whole && counts.len() == 1;
        let (hash, _) = counts.into_iter().max_by_key(|(_, count)| *count).filter(|_| lost || whole)?;
        // Whether the desired hash has completed is decided from the nodes, not here.
        (hash != self.requested()).then_some((hash, build_id))
    }

    /// The rollout hash that the nodes below the partition hold, if it is not the desired one, and its build ID. If the
    /// whole status was lost under InPlace, nothing else shows that a partition holds nodes back: without that revision
    /// they would follow the others.
    fn held_below_partition(
        &self,
        status: &NodeDeploymentStatus,
        set: &SetName,
    ) -> Option<(RolloutHash, Option<BuildId>)> {
        let held = self.spec.partition().min(self.spec.replicas);
        let is_lost = status.active_set.is_empty() || status.requested_rollout_hash.is_empty();
        if !is_lost || held == 0 {
            return None;
        }
        let nodes = self.nodes_below(held, set);
        let build_id = self.made_under(status, set, &nodes);
        let served = nodes.iter().all(|node| self.has_served(node));
        let mut hashes = nodes.iter().map(|node| self.spec_hash(node, build_id.as_ref()));
        let hash = hashes.next()??;
        let agree = hashes.all(|other| other.as_ref() == Some(&hash));
        (served && agree && hash != self.requested()).then_some((hash, build_id))
    }

    /// The nodes of a set whose ordinals are lower than this one.
    fn nodes_below(&self, ordinal: i32, set: &SetName) -> Vec<Arc<ObservedNode>> {
        let is_below = |node: &Arc<ObservedNode>| {
            let place = place_of(&self.fleet.meta.name, &node.meta.name);
            place.is_some_and(|(_, of_node)| of_node < ordinal)
        };
        let mut nodes = self.nodes_by_set().remove(set).unwrap_or_default();
        nodes.retain(is_below);
        nodes
    }

    /// True if a node has been available, which completes a first creation: Ready for `minReadySeconds`. Only a node
    /// that is Ready now shows for how long it has been.
    fn was_available(&self, node: &ObservedNode) -> bool {
        self.has_served(node) && self.is_long_enough(self.served_since(node))
    }

    /// The build ID under which a set was created: one that the set's name confirms, or a kept revision with a hash
    /// that its nodes hold.
    fn made_under(
        &self,
        status: &NodeDeploymentStatus,
        set: &SetName,
        nodes: &[Arc<ObservedNode>],
    ) -> Option<BuildId> {
        let meta = &self.fleet.meta;
        let is_kept = |hash: &RolloutHash| {
            let name = revision_name(&meta.name, &meta.uid, hash);
            self.view.revisions.get(&Key::new(&meta.namespace, name.as_str())).is_some()
        };
        let was_made_under = |id: &BuildId| {
            let choice = first_choice(&RolloutHash::lost(), Some(id));
            let named = set.as_str().split('-').next() == Some(choice.as_str());
            named || nodes.iter().filter_map(|node| self.spec_hash(node, Some(id))).any(|held| is_kept(&held))
        };
        let ids = [status.active_build_id(), self.spec.build_id()];
        ids.into_iter().flatten().find(was_made_under)
    }
}

/// True if another set is to take over from this one.
fn gives_way(rollout: &Rollout, set: &SetName) -> bool {
    rollout.entrant().is_some() && *set == *rollout.incumbent_set
}
