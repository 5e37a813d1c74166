//! What a fleet's status says of the set that serves, put right where that was lost or does not fit what is seen. It is
//! done before anything is decided, so that nothing rests on what is not so.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FleetScope;
use crate::api::names::{FIRST_SET, place_of};
use crate::api::{NodeDeploymentStatus, Stage, StrategyType};
use crate::cluster::Key;
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::planner::fleet::sets::naming::first_choice;
use crate::planner::fleet::sets::serving::Pair;
use crate::revision::revision_name;

impl FleetScope {
    /// The same fleet with a status that fits what is seen. Where nothing tells which set serves it stays as it is.
    #[must_use]
    pub fn put_right(mut self) -> Self {
        let Ok(set) = self.serving() else { return self };
        if let Some(status) = self.record_of(&set) {
            let fleet = ObservedFleet { status: Box::new(status), ..(*self.fleet).clone() };
            self.fleet = Arc::new(fleet);
        }
        self
    }

    fn record_of(&self, set: &str) -> Option<NodeDeploymentStatus> {
        let recorded = &self.fleet.status.active_set;
        let is_other = !recorded.is_empty() && recorded != set;
        if !is_other && !self.fleet.status.last_completed_rollout_hash.is_empty() {
            return None;
        }
        let mut status = (*self.fleet.status).clone();
        let pair = self.set_rollout().as_ref().and_then(Pair::of);
        if is_other {
            set.clone_into(&mut status.active_set);
            // What is said of a set that does not serve is not said of the one that does, unless a rollout bears it out.
            if pair.as_ref().is_none_or(|pair| pair.serves != set) {
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

    /// Takes in what last completed on the set that serves: what the rollout under way says of it, or what its nodes hold.
    fn record_what_completed(&self, status: &mut NodeDeploymentStatus, set: &str, is_other: bool) {
        let meta = &self.fleet.meta;
        let rollout = status.rollout.as_ref();
        let completed = match rollout {
            Some(r) if r.stage == Stage::Retiring && r.entrant_set == set => {
                Some((r.target_hash.clone(), r.build_id.clone()))
            }
            Some(r) if r.incumbent_set == set && !r.from_hash.is_empty() => {
                Some((r.from_hash.clone(), status.active_build_id.clone()))
            }
            Some(_) => None,
            None => self.run_by(status, set, is_other),
        };
        if let Some((hash, build_id)) = completed {
            status.current_revision = revision_name(&meta.name, &meta.uid, &hash);
            status.last_completed_rollout_hash = hash;
            status.active_build_id = build_id;
        }
    }

    /// What a set's nodes run that is not what is wanted, and the build ID under which they were made. `None` where a change
    /// goes over them in place: under InPlace, and before the first creation was ever whole.
    fn run_by(&self, status: &NodeDeploymentStatus, set: &str, is_other: bool) -> Option<(String, String)> {
        let by_set = self.spec.update_strategy.strategy();
        if !matches!(by_set, Some(StrategyType::BlueGreen | StrategyType::HardFork)) {
            return None;
        }
        let wanted = |node: &Arc<ObservedNode>| {
            let place = place_of(&self.fleet.meta.name, &node.meta.name);
            place.is_some_and(|(_, ordinal)| ordinal < self.spec.replicas)
        };
        let mut nodes = self.nodes_by_set().remove(set).unwrap_or_default();
        nodes.retain(wanted);
        let all = nodes.len();
        nodes.retain(|node| node.status.first_ready_at.is_some());
        let build_id = self.made_under(status, set, &nodes);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for node in &nodes {
            *counts.entry(self.held(node, &build_id)).or_default() += 1;
        }
        counts.remove("");
        // A fleet that is being created for the first time has a status that says that it is.
        let lost = is_other
            || status.active_set.is_empty()
            || status.requested_rollout_hash.is_empty()
            || set != FIRST_SET;
        let whole = all == nodes.len() && i32::try_from(all) == Ok(self.spec.replicas) && counts.len() == 1;
        let (hash, _) = counts.into_iter().max_by_key(|(_, count)| *count).filter(|_| lost || whole)?;
        // That what is wanted is complete is for the nodes to show.
        (hash != self.requested()).then_some((hash, build_id))
    }

    /// The build ID under which a set was made: one that its name, or a kept revision of what its nodes hold, bears out.
    fn made_under(&self, status: &NodeDeploymentStatus, set: &str, nodes: &[Arc<ObservedNode>]) -> String {
        let meta = &self.fleet.meta;
        let is_kept = |hash: &str| {
            let name = revision_name(&meta.name, &meta.uid, hash);
            self.view.revisions.get(&Key::new(&meta.namespace, &name)).is_some()
        };
        let is_it = |id: &String| {
            let named = set.split('-').next() == Some(first_choice("", id).as_str());
            named || nodes.iter().any(|node| is_kept(&self.held(node, id)))
        };
        let ids = [&status.active_build_id, &self.spec.unsafe_custom_build_id];
        ids.into_iter().find(|id| !id.is_empty() && is_it(id)).cloned().unwrap_or_default()
    }
}
