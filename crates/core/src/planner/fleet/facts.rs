//! Everything that a decision about a fleet rests on.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::IntOrString;

use super::child::{ChildFacts, Conflict};
use super::decision::{Cause, RolloutTarget, Strategy};
use super::sets::{SetFacts, SetRollout};
use crate::api::{
    AtHook, BuildId, Ending, OnStall, PlanId, PodTemplateHash, Promotion, Rejected, RestartTime, RolloutHash,
    SetName,
};
use crate::engine::Plan;

/// What a revision renders to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rendering {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image.
    pub image: String,
}

/// Everything that a decision about a fleet rests on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct FleetFacts {
    /// The set that its nodes belong to: the one that serves.
    pub set: SetName,
    /// `spec.replicas`.
    pub replicas: i32,
    /// How many nodes may be disrupted at once.
    pub max_unavailable: i32,
    /// Ordinals below it keep the current revision.
    pub partition: i32,
    /// `spec.paused`.
    pub paused: bool,
    /// What a stall leads to.
    pub on_stall: OnStall,
    /// `updateStrategy.progressDeadlineSeconds`.
    pub deadline_seconds: i64,
    /// Whether the fleet is being deleted.
    pub terminating: bool,
    /// The rollout hash of what is wanted.
    pub requested: RolloutHash,
    /// The rollout hash of what last completed; none before the first.
    pub last_completed: Option<RolloutHash>,
    /// The target that is not tried again, if it is still the one wanted.
    pub rejected: Option<Rejected>,
    /// Who asked last for what with the command line: the annotation, as it is written.
    pub asked: Option<String>,
    /// The latest restart obeyed.
    pub restarted_at: Option<RestartTime>,
    /// A later restart that is asked for.
    pub restart_request: Option<RestartTime>,
    /// Whether nothing was ever recorded of it: its status was lost, or its nodes were there first.
    pub unrecorded: bool,
    /// Whether a fleet that was scaled to 0 is filling again.
    pub scaled_to_zero: bool,
    /// The plan that the abort annotation names.
    pub abort: Option<PlanId>,
    /// The plan that the retry annotation names, unless that was obeyed.
    pub retry: Option<PlanId>,
    /// Why what is wanted cannot be started, in a sentence.
    pub invalid: Option<String>,
    /// What could not be applied although the rest goes on, in a sentence.
    pub not_applied: Option<String>,
    /// What a set that should be gone, or made, waits for, in a sentence.
    pub waits_for: Option<String>,
    /// Why it is not known which set serves, in a sentence: then nothing is done.
    pub undecided: Option<String>,
    /// The set that the fleet's own Service selects, where it has one.
    pub selected: Option<SetName>,
    /// How new nodes take over, where a change makes any.
    pub strategy: Strategy,
    /// When they do.
    pub promotion: Promotion,
    /// Whether a person asks for the promotion of what is wanted.
    pub force_promote: bool,
    /// `spec.unsafeCustomBuildID` of what is wanted; none where it is generated.
    pub build_id: Option<BuildId>,
    /// The one under which the active set was made.
    pub active_build_id: Option<BuildId>,
    /// How long a set that served lives on, in seconds.
    pub retire_delay_seconds: i64,
    /// The height that old nodes are to halt at (HardFork).
    pub halt_height: i64,
    /// The rollout that makes a set of nodes, where one is active.
    pub set_rollout: Option<SetRollout>,
    /// Why a rollout was started that is under way and may still be given up, where one is; it has a plan unless that is
    /// lost.
    pub under_way: Option<Cause>,
    /// Every other set of which anything exists.
    pub sets: BTreeMap<SetName, SetFacts>,
    /// The nodes of the active set, by ordinal.
    pub children: Vec<ChildFacts>,
    /// Names of nodes that belong to something else.
    pub conflicts: Vec<Conflict>,
    /// Pods of nodes that were scaled away and are gone, which still run or shut down.
    pub shutting_down: Vec<String>,
    /// The hook that its own plan is at.
    pub at_hook: Option<AtHook>,
    /// The hooks whose failure takes the rollout back, by name.
    pub rolling_back: Vec<String>,
    /// `inPlace.steps`, where they ascend.
    pub steps: Vec<IntOrString>,
    /// The step that its plan is at, or stops after: an index into them.
    pub step: Option<usize>,
    /// What revisions render to, by rollout hash and restart.
    pub renderings: BTreeMap<(RolloutHash, Option<RestartTime>), Rendering>,
}

impl FleetFacts {
    /// The nodes that are wanted and exist.
    pub fn wanted(&self) -> impl Iterator<Item = &ChildFacts> {
        self.children.iter().filter(|c| !c.surplus)
    }

    /// The ordinals that are wanted, do not exist and whose name is free.
    #[must_use]
    pub fn missing(&self) -> Vec<i32> {
        let children = self.children.iter().map(|c| c.ordinal);
        let taken: BTreeSet<i32> = children.chain(self.conflicts.iter().map(|c| c.ordinal)).collect();
        (0..self.replicas).filter(|ordinal| !taken.contains(ordinal)).collect()
    }

    /// Whether somebody asks for this plan to be aborted.
    #[must_use]
    pub fn is_aborted(&self, plan: &Plan) -> bool {
        self.abort == plan.id
    }

    /// Whether somebody asks for this plan to be tried again.
    #[must_use]
    pub fn is_retried(&self, plan: &PlanId) -> bool {
        self.retry == *plan
    }

    /// Whether a target that was rejected still is: nothing else is wanted that could be tried.
    #[must_use]
    pub fn stays_rejected(&self, rejected: &Rejected) -> bool {
        self.requested == *rejected.hash || self.invalid.is_some()
    }

    /// Whether a revision with this rollout hash is kept.
    #[must_use]
    pub fn is_known(&self, revision: &RolloutHash) -> bool {
        let first = self.renderings.range((revision.clone(), None)..).next();
        first.is_some_and(|((known, _), _)| known == revision)
    }

    /// Ordinals below this keep the current revision; none do before there is one.
    #[must_use]
    pub fn held_below(&self) -> i32 {
        // The same content is another target under another build ID: then there is nothing to hold them at.
        let other_id = self.build_id != self.active_build_id;
        if self.last_completed.is_none() || other_id { 0 } else { self.partition }
    }

    /// The revision for nodes that no rollout is about: the wanted one, or, while that is rejected or
    /// cannot be started, the current one.
    #[must_use]
    pub fn steady_revision(&self) -> &RolloutHash {
        let unusable =
            self.rejected.is_some() || !self.is_known(&self.requested) || self.is_for_another_set();
        self.last_completed.as_ref().filter(|_| unusable).unwrap_or(&self.requested)
    }

    /// The target of a template rollout: what is wanted, or, once that was rolled back, what was before.
    #[must_use]
    pub fn goal(&self) -> &RolloutHash {
        let rolled_back = self.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::RolledBack));
        self.last_completed.as_ref().filter(|_| rolled_back).unwrap_or(&self.requested)
    }

    /// The revision that a node is to hold.
    #[must_use]
    pub fn revision_for<'a>(
        &'a self,
        child: &'a ChildFacts,
        rollout_target: &'a RolloutTarget,
    ) -> &'a RolloutHash {
        match (rollout_target, &self.last_completed) {
            (RolloutTarget::Revision(_), Some(current)) if child.ordinal < self.held_below() => current,
            (RolloutTarget::Revision(target), _) => target,
            (RolloutTarget::Own, _) => {
                let own = child.spec_hash.as_ref().filter(|own| self.is_known(own));
                own.unwrap_or_else(|| self.steady_revision())
            }
        }
    }

    /// What a revision renders to under a restart.
    #[must_use]
    pub fn rendering(&self, revision: &RolloutHash, restart: Option<&RestartTime>) -> Option<&Rendering> {
        self.renderings.get(&(revision.clone(), restart.cloned()))
    }

    /// Whether a node holds a revision that is kept.
    #[must_use]
    pub fn holds_known(&self, child: &ChildFacts) -> bool {
        child.spec_hash.as_ref().is_some_and(|hash| self.is_known(hash))
    }

    /// What the revision that a node holds renders to under a restart.
    #[must_use]
    pub fn held_by(&self, child: &ChildFacts, restart: Option<&RestartTime>) -> Option<&Rendering> {
        self.rendering(child.spec_hash.as_ref()?, restart)
    }

    /// What a node is to run.
    #[must_use]
    pub fn target_for(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> Option<&Rendering> {
        self.rendering(self.revision_for(child, rollout_target), child.restart.as_ref())
    }

    /// Whether a node's spec and grant are what they are to be.
    #[must_use]
    pub fn is_granted(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        child.spec_hash == *self.revision_for(child, rollout_target)
            && self.target_for(child, rollout_target).is_some_and(|t| child.granted == t.hash)
            && !child.is_drifted()
    }

    /// Whether a node was observed at what it is to run.
    #[must_use]
    pub fn is_updated(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        self.is_granted(child, rollout_target)
            && !child.status_outdated
            && self
                .target_for(child, rollout_target)
                .is_some_and(|t| child.running == t.hash && t.image == child.running_image)
    }

    /// How many nodes are disrupted, those missing and those being scaled away included. A name that
    /// belongs to something else is no node of this fleet: it must not hold up the others.
    #[must_use]
    pub fn disrupted(&self) -> i32 {
        let existing = self.children.iter().filter(|c| c.is_disrupted()).count();
        (existing + self.missing().len() + self.shutting_down.len()) as i32
    }

    /// Whether the partition keeps nodes from where the rollout goes.
    #[must_use]
    pub fn revision_differs_below_partition(&self, rollout_target: &RolloutTarget) -> bool {
        matches!(rollout_target, RolloutTarget::Revision(target) if self.last_completed != *target)
            && self.held_below() > 0
    }

    /// Whether every wanted node exists, is at what it is to run, and serves, and nothing else is left.
    #[must_use]
    pub fn is_converged(&self, rollout_target: &RolloutTarget) -> bool {
        self.replicas > 0
            && self.missing().is_empty()
            && self.conflicts.is_empty()
            && self
                .children
                .iter()
                .all(|c| !c.surplus && self.is_updated(c, rollout_target) && !c.is_disrupted())
    }
}
