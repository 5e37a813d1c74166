//! The facts about a fleet's sets of nodes.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use super::super::child::ChildFacts;
use super::super::decision::{RolloutTarget, Start, Strategy};
use super::super::facts::FleetFacts;
use super::rollout::{SetFacts, SetRollout};
use super::stage::skips_caught_up;
use crate::api::{NodeDeploymentStatus, Promotion, RetiringSet, RolloutHash, SetName, Stage};

impl FleetFacts {
    /// The strategy of a rollout to this target.
    #[must_use]
    pub fn strategy_for(&self, target: &RolloutHash) -> Strategy {
        let same_set = self.spec.build_id.is_some() && self.spec.build_id == self.record.active_build_id;
        // Before the first completion there is no serving set next to which a new one could be created.
        if self.record.last_completed.is_none() || self.record.last_completed == *target || same_set {
            return Strategy::InPlace;
        }
        self.spec.strategy
    }

    /// True if the desired revision, or the active rollout, is not for the active set.
    #[must_use]
    pub fn is_for_another_set(&self) -> bool {
        let under_way = self.rollout.now.set().is_some_and(|r| r.stage != Stage::Retiring);
        under_way || self.strategy_for(&self.requested).creates_set()
    }

    /// The new set, until it has taken over.
    #[must_use]
    pub fn entrants(&self) -> Option<&SetFacts> {
        let rollout = self.rollout.now.set().filter(|r| r.entrant != self.set)?;
        self.sets.get(&rollout.entrant)
    }

    /// The existing nodes of the active set, and of the other sets of its rollout.
    pub fn nodes_of_rollout(&self) -> impl Iterator<Item = &ChildFacts> {
        let sets = self.rollout.now.set().into_iter().flat_map(|r| r.incumbent.iter().chain([&r.entrant]));
        let others = sets.filter_map(|set| self.sets.get(set)).flat_map(|set| &set.children);
        self.children.iter().chain(others)
    }

    /// The desired nodes. Under `Immediately`, once the old nodes are deleted, these are the nodes of the new set.
    pub fn expected_nodes(&self) -> impl Iterator<Item = &ChildFacts> {
        let new = self.entrants().filter(|_| self.children.is_empty());
        self.wanted().chain(new.into_iter().flat_map(|set| &set.children))
    }

    /// True if the active set is not repaired because it is being removed.
    #[must_use]
    pub fn active_set_is_removed(&self) -> bool {
        let goes = |r: &SetRollout| r.stage == Stage::Promoting && r.strategy == Strategy::BlueGreenImmediate;
        self.rollout.now.set().is_some_and(goes)
    }

    /// The facts as if this set were the active one, and no other set existed.
    #[must_use]
    pub fn as_set(&self, set: &SetName) -> Self {
        if *set == self.set {
            return self.clone().with(|f| {
                f.spec.partition = 0;
                f.sets = [].into();
            });
        }
        let SetFacts { children, conflicts, shutting_down, .. } =
            self.sets.get(set).cloned().unwrap_or_default();
        let (set, sets) = (set.clone(), [].into());
        self.clone().with(|f| {
            f.set = set;
            f.record.existed = children.len() as i32;
            f.children = children;
            f.conflicts = conflicts;
            f.shutting_down = shutting_down;
            f.spec.partition = 0;
            f.sets = sets;
        })
    }

    /// The facts with this set as the active one, and the previously active set among the others.
    #[must_use]
    pub fn activated(&self, set: &SetName) -> Self {
        if *set == self.set {
            return self.clone();
        }
        let mut facts = self.as_set(set);
        facts.spec.partition = self.spec.partition;
        facts.sets = self.sets.clone();
        facts.sets.remove(set);
        let before = SetFacts {
            children: self.children.clone(),
            conflicts: self.conflicts.clone(),
            remains: self.children.len(),
            shutting_down: self.shutting_down.clone(),
            ..SetFacts::default()
        };
        facts.sets.insert(self.set.clone(), before);
        facts
    }

    /// True if every desired node of the new set exists and runs the target.
    #[must_use]
    pub fn entrants_run(&self, rollout: &SetRollout) -> bool {
        let view = self.as_set(&rollout.entrant);
        view.spec.replicas > 0
            && view.missing().is_empty()
            && view.conflicts.is_empty()
            && view.wanted().all(|c| view.runs(c, &rollout.target))
    }

    /// The old nodes of a hard fork that have reported no height. A node whose height is not known cannot be asked to
    /// halt at one: past the point of no return, the rollout might wait for it forever.
    pub fn without_height(&self) -> impl Iterator<Item = &ChildFacts> {
        self.children.iter().filter(|child| !child.terminating && !child.has_reported_height())
    }

    /// The desired ordinals of a hard fork's old nodes that cannot report a height: the node is deleted or being
    /// deleted, or another object has its name. Past the point of no return such nodes would be recreated, and their
    /// height would not be known.
    #[must_use]
    pub fn absent(&self) -> BTreeSet<i32> {
        let going = self.wanted().filter(|child| child.terminating).map(|child| child.ordinal);
        let taken = self.conflicts.iter().map(|conflict| conflict.ordinal);
        going.chain(taken).chain(self.missing()).collect()
    }

    /// True if the rollout may pass the point of no return: the spec is valid, the fleet is not paused, no window is waited for,
    /// its nodes are ready for it and, where the old nodes stop serving before traffic moves, the fleet has its Service.
    #[must_use]
    pub fn may_pass_no_return(&self, rollout: &SetRollout) -> bool {
        let has_service = !self.lacks_service_for(rollout);
        self.findings.blocker.is_none()
            && !self.spec.paused
            && !self.rollout.gate.is_closed()
            && has_service
            && self.nodes_are_ready_for(rollout)
    }

    /// True if the fleet lacks its Service and the old nodes stop serving before traffic moves. Under BlueGreen they serve
    /// until then, however long that takes.
    fn lacks_service_for(&self, rollout: &SetRollout) -> bool {
        self.service.is_missing && rollout.strategy != Strategy::BlueGreen
    }

    /// True if the nodes keep the rollout from passing the point of no return no more: all nodes of the new set run the
    /// target and, under HardFork, every old node exists and has reported a height. Where the old nodes go before the
    /// new ones are created, there is nothing to wait for.
    fn nodes_are_ready_for(&self, rollout: &SetRollout) -> bool {
        let known = || {
            self.spec.halt_height > 0 && self.without_height().next().is_none() && self.absent().is_empty()
        };
        let height = rollout.strategy != Strategy::HardFork || known();
        let old_first = rollout.strategy == Strategy::BlueGreenImmediate;
        height && (old_first || self.entrants_run(rollout))
    }

    /// True if a rollout that can still be rolled back waits only for the fleet's Service: another object has its name,
    /// or the earlier one is still being deleted. No node is late then.
    #[must_use]
    pub fn awaits_service(&self, rollout: &SetRollout) -> bool {
        self.lacks_service_for(rollout) && rollout.is_revocable() && self.nodes_are_ready_for(rollout)
    }

    /// True if a node of the new set runs the target now.
    #[must_use]
    pub fn runs(&self, child: &ChildFacts, target: &RolloutHash) -> bool {
        self.is_updated(child, &RolloutTarget::Revision(target.clone())) && child.has_running_pod()
    }

    /// When a set that left service, or was abandoned, is removed.
    #[must_use]
    pub fn removal_of(&self, set: &RetiringSet) -> DateTime<Utc> {
        let delay = if set.has_served() { self.spec.retire_delay_seconds } else { 0 };
        set.since + TimeDelta::seconds(delay)
    }

    /// The active rollout, if a start continues with its set because it has the same target.
    #[must_use]
    pub fn same_set(&self, start: &Start) -> Option<&SetRollout> {
        let rollout = self.rollout.now.set().filter(|r| r.is_revocable())?;
        let same = rollout.target == start.target && rollout.build_id == self.spec.build_id;
        (same && start.strategy.creates_set()).then_some(rollout)
    }

    /// A set that left service and can serve the desired revision again, because it still exists as a whole.
    #[must_use]
    pub fn living_set(&self, now: DateTime<Utc>) -> Option<&SetName> {
        // The new set of a rollout that is abandoned may be such a set as well: it may have served before.
        let enters = self.rollout.now.set().filter(|r| r.is_revocable()).map(|r| r.given_up(now));
        let lives = |name: &SetName, facts: &SetFacts| {
            let enters = enters.as_ref().filter(|entrant| *name == *entrant.set);
            let known = facts.retiring.as_ref().or(enters);
            let is_wanted = match known.filter(|set| !set.is_stray()) {
                Some(set) if self.spec.build_id.is_some() => {
                    set.build_id() == self.spec.build_id && !facts.claims_differ
                }
                Some(set) => set.build_id().is_none() && self.requested == *set.hash,
                // The status has lost the rollout that created it.
                None => facts.children.iter().all(|c| c.spec_hash == self.requested),
            };
            let whole = !facts.children.is_empty() && facts.children.iter().all(|c| !c.terminating);
            // Nodes that have halted at a height do not resume.
            let halted = known.is_some_and(|set| set.halt_height > 0)
                || facts.children.iter().any(ChildFacts::halt_is_requested);
            let stays = known.is_none_or(|set| set.has_served() && self.removal_of(set) > now);
            is_wanted && whole && !halted && stays
        };
        self.sets.iter().find(|(name, facts)| lives(name, facts)).map(|(name, _)| name)
    }

    /// True if the switch waits for a user. Once the stage Promoting is recorded, the user's request was accepted and
    /// is used up.
    #[must_use]
    pub fn awaits_person(&self) -> bool {
        let heard = self.rollout.now.set().is_some_and(|r| r.stage == Stage::Promoting);
        self.spec.promotion == Promotion::Manual && !self.requests.force_promote && !heard
    }

    /// True if nothing but a user is waited for: every new node runs the target and has caught up, unless a user has
    /// skipped that. Hours may pass before the user comes, in which nodes stop being ready, or more become desired. A
    /// promotion does not wait for them, so it must not be offered then. `status`: the one that these facts are about.
    #[must_use]
    pub fn is_ready_to_promote(&self, status: &NodeDeploymentStatus) -> bool {
        let Some(rollout) = self.rollout.now.set().filter(|r| r.stage == Stage::AwaitingPromotion) else {
            return false;
        };
        let entrants = self.entrants().map_or(&self.children, |set| &set.children);
        let caught_up = || entrants.iter().filter(|c| !c.surplus).all(ChildFacts::is_caught_up);
        let skipped = || {
            let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok());
            plan.is_some_and(|plan| skips_caught_up(&plan))
        };
        let may_take_over = || rollout.strategy != Strategy::BlueGreen || caught_up() || skipped();
        let may_begin = self.rollout.gate.sentence().is_none();
        may_begin && self.awaits_person() && self.entrants_run(rollout) && may_take_over()
    }
}
