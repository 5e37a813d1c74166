//! Repairs a fleet's status that was lost, or that contradicts itself or what is observed. The repair comes before any
//! decision, so that no decision is based on a wrong record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FleetScope;
use crate::api::conditions::{self, Truth, UP_TO_DATE};
use crate::api::ids::field;
use crate::api::names::place_of;
use crate::api::{
    BuildId, Ending, NodeDeploymentStatus, Reason, Rejected, Rollout, RolloutHash, SameContent, SetName,
    Stage, StrategyType,
};
use crate::engine::PlanState;
use crate::planner::fleet::damage::Damage;
use crate::planner::fleet::sets::naming::first_choice;
use crate::planner::fleet::status::rollout_target_of;
use crate::planner::fleet::{Cause, Strategy};
use crate::revision::revision_name;
use windlass_kube_port::Key;
use windlass_kube_port::observed::{ObservedFleet, ObservedNode};

impl FleetScope {
    /// The same fleet with a status that fits what is observed. If nothing shows which set serves, the record of that
    /// set stays as it is.
    #[must_use]
    pub(crate) fn repair_status(mut self) -> Self {
        if let Some(damage) = self.damage() {
            let sound = self.fleet.status.without(damage);
            tracing::warn!(
                fleet = %self.fleet.meta.key(), ?damage,
                "the status contradicts itself; Windlass restores it from the Service and the nodes"
            );
            self.set_status(sound);
        }
        let serving = self.serving();
        if let Some(rollout) = serving.as_ref().ok().and_then(|set| self.halting_promotion(set)) {
            self.set_status(NodeDeploymentStatus { rollout: Some(rollout), ..(*self.fleet.status).clone() });
        }
        if let Some(rejected) = self.rejected() {
            self.set_status(NodeDeploymentStatus {
                rejected: Some(rejected),
                ..(*self.fleet.status).clone()
            });
        }
        self.rollout_target = rollout_target_of(&self.fleet.status);
        if let Ok(set) = serving
            && let Some(status) = self.record_of(&set)
        {
            self.set_status(status);
        }
        self
    }

    /// The same StatefulSetRollout without a rollout that contradicts itself. All else is read from its StatefulSets.
    #[must_use]
    pub(super) fn repair_rollout(mut self) -> Self {
        if Damage::of(&self.fleet.status).is_some() {
            self.set_status(self.fleet.status.without(Damage::Rollout));
            self.rollout_target = rollout_target_of(&self.fleet.status);
        }
        self
    }

    /// Records whether the spec has the content of a revision and is only written otherwise.
    pub(crate) fn record_same_content(&mut self, same_content: Option<SameContent>) {
        if self.fleet.status.same_content != same_content {
            self.set_status(NodeDeploymentStatus { same_content, ..(*self.fleet.status).clone() });
            // The cached results are about another target.
            self.cache = Arc::default();
        }
    }

    fn set_status(&mut self, status: NodeDeploymentStatus) {
        let fleet = ObservedFleet { status: Box::new(status), ..(*self.fleet).clone() };
        self.fleet = Arc::new(fleet);
    }

    /// The parts of the status that cannot be trusted. Traffic may have moved to another set than the one on record if
    /// the
    /// rollout that moved it is lost.
    fn damage(&self) -> Option<Damage> {
        let status = &self.fleet.status;
        let damage = Damage::of(status).or_else(|| self.has_lost_build_id().then_some(Damage::Record))?;
        let has_moved = self.selected_set().is_some_and(|set| status.active_set() != Some(set));
        Some(if has_moved { Damage::Record } else { damage })
    }

    /// True if `activeBuildID` is missing: a kept revision or a node has the rollout hash that last completed under
    /// another build ID. Without the build ID, the active set would be retired as an unknown set.
    fn has_lost_build_id(&self) -> bool {
        let status = &self.fleet.status;
        let of_rollout = status.rollout.as_ref().and_then(Rollout::build_id);
        let ids: Vec<BuildId> = self.spec.build_id().into_iter().chain(of_rollout).collect();
        let Some(completed) = status.last_completed() else { return false };
        if !status.active_build_id.is_empty() || ids.is_empty() {
            return false;
        }
        let mut kept = self.view.revisions.group(&self.fleet.meta.namespace, &self.fleet.meta.uid);
        kept.retain(|revision| revision.meta.is_controlled_by(&self.fleet.meta.uid));
        let is_kept = |id: &BuildId| kept.iter().any(|r| self.rollout_hash_of(r, Some(id)) == completed);
        let is_run =
            |id: &BuildId| self.children().iter().any(|node| self.spec_hash(node, Some(id)) == completed);
        ids.iter().any(|id| is_kept(id) || is_run(id))
    }

    /// The promotion of a HardFork whose record is lost although nodes of the active set are asked to halt: it is past
    /// the point of no return. It has no plan, and fails until a user retries it.
    fn halting_promotion(&self, incumbent: &SetName) -> Option<Rollout> {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        if status.rollout.is_some() || halt_height(&self.children()).is_none() {
            return None;
        }
        let mut sets = self.nodes_by_set();
        let halt_height = halt_height(&sets.remove(incumbent)?)?;
        sets.retain(|set, _| !status.retiring.iter().any(|retiring| *set == *retiring.set));
        let (entrant, nodes) = sets.pop_first().filter(|_| sets.is_empty())?;
        let build_id = self.created_under(status, &entrant, &nodes);
        let target = nodes.iter().find_map(|node| self.spec_hash(node, build_id.as_ref()))?;
        Some(Rollout {
            strategy: Strategy::HardFork.api_name().to_owned(),
            recipe: Strategy::HardFork.recipe().to_owned(),
            target_revision: revision_name(&meta.name, &meta.uid, &target).into(),
            target_hash: target.into(),
            cause: Cause::TemplateChanged.as_ref().to_owned(),
            stage: Stage::Promoting,
            incumbent_set: incumbent.to_string(),
            entrant_set: entrant.into(),
            build_id: field(build_id.as_ref()).to_owned(),
            from_hash: status.last_completed_rollout_hash.clone(),
            halt_height,
            ..Rollout::begun(self.now)
        })
    }

    /// The target that the conditions still report as given up, if it is the desired one and its record is lost: it
    /// must
    /// not be retried just because of that.
    fn rejected(&self) -> Option<Rejected> {
        let status = &self.fleet.status;
        let requested = &status.requested_rollout_hash;
        if status.rejected.is_some()
            || status.rollout.is_some()
            || requested.is_empty()
            || self.requested() != **requested
            || *requested == status.last_completed_rollout_hash
        {
            return None;
        }
        let said =
            conditions::find(&status.conditions, UP_TO_DATE).filter(|c| c.status == Truth::False.as_ref())?;
        let outcome = match said.reason.parse().ok()? {
            Reason::Aborted => Ending::Aborted,
            Reason::RolledBack => Ending::RolledBack,
            Reason::PlanFailed => Ending::Failed,
            _ => return None,
        };
        let ended = status
            .history
            .iter()
            .rev()
            .find(|h| h.outcome == outcome.as_ref() && h.target_hash == *requested);
        let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok());
        let of_plan = plan.filter(|p| matches!(p.state, PlanState::Aborted | PlanState::Failed));
        let of_plan = of_plan.filter(|p| p.target_hash == *requested).map(|p| p.id.to_string());
        let plan_id = ended.map(|h| h.plan_id.clone()).or(of_plan)?;
        Some(Rejected {
            hash: requested.clone(),
            build_id: status.build_id.clone(),
            plan_id,
            outcome: outcome.as_ref().to_owned(),
            message: String::new(),
        })
    }

    /// The status with the record of the set that serves, if that is missing or is of another set. The last completed
    /// revision is read from the nodes' specs.
    fn record_of(&self, set: &SetName) -> Option<NodeDeploymentStatus> {
        let is_other = self.fleet.status.active_set().is_some_and(|recorded| recorded != *set);
        if !is_other && !self.fleet.status.last_completed_rollout_hash.is_empty() {
            return None;
        }
        let mut status = (*self.fleet.status).clone();
        if is_other {
            status.active_set = set.to_string();
            status.active_build_id.clear();
            status.last_completed_rollout_hash.clear();
            status.current_revision.clear();
        }
        let completed = match &status.rollout {
            // Updated nodes already run the target, so under InPlace nothing shows what ran before.
            Some(rollout) if rollout.entrant().is_none() || *set != *rollout.incumbent_set => None,
            Some(_) => self.run_by(&status, set, is_other),
            None => self.run_by(&status, set, is_other).or_else(|| self.held_below_partition(&status, set)),
        };
        if let Some((hash, build_id)) = completed {
            let meta = &self.fleet.meta;
            status.current_revision = revision_name(&meta.name, &meta.uid, &hash).into();
            status.last_completed_rollout_hash = hash.into();
            field(build_id.as_ref()).clone_into(&mut status.active_build_id);
        }
        (status != *self.fleet.status).then_some(status)
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
        let build_id = self.created_under(status, set, &nodes);
        let mut counts: BTreeMap<RolloutHash, usize> = BTreeMap::new();
        for held in nodes.iter().filter_map(|node| self.spec_hash(node, build_id.as_ref())) {
            *counts.entry(held).or_default() += 1;
        }
        // During the first creation of a fleet the status has a requested hash and names the first set as active. If
        // not, or if another set is to take over, it was lost.
        let lost = is_other
            || status.rollout.is_some()
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
        let build_id = self.created_under(status, set, &nodes);
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
    fn created_under(
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
        let requested = BuildId::recorded(status.build_id.as_str());
        let ids = [status.active_build_id(), self.spec.build_id(), requested];
        ids.into_iter().flatten().find(was_made_under)
    }
}

/// The height at which nodes are asked to halt, if any is. If somebody has edited them so that they differ, the highest
/// one is used, which undoes nothing.
pub(super) fn halt_height(nodes: &[Arc<ObservedNode>]) -> Option<i64> {
    let heights = nodes.iter().filter_map(|node| Some(node.spec.as_ref().ok()?.halt_height));
    heights.max().filter(|height| *height > 0)
}
