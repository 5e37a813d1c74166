//! The facts that every decision about a fleet is based on.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::IntOrString;

use super::child::{ChildFacts, Conflict};
use super::decision::{Cause, RolloutTarget, Strategy};
use super::sets::{SetFacts, SetRollout};
use super::state::{Flight, NodeState};
use crate::api::{
    AtHook, BuildId, Ending, OnStall, PlanId, PodTemplateHash, Promotion, Rejected, RestartTime, RolloutHash,
    SetName,
};
use crate::engine::Plan;
use crate::planner::waits::Wait;

/// What a revision renders to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rendering {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image.
    pub image: String,
}

/// The facts that every decision about a fleet is based on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct FleetFacts {
    /// The active set: the one that serves. Its nodes are in `children`.
    pub set: SetName,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`: how many nodes of the active set existed when the status was last written.
    pub existed: i32,
    /// True if the status reports a stall.
    pub stalled: bool,
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
    /// True if the fleet is being deleted.
    pub terminating: bool,
    /// The desired rollout hash.
    pub requested: RolloutHash,
    /// The rollout hash that last completed; `None` before the first completion.
    pub last_completed: Option<RolloutHash>,
    /// The target that is not retried by itself, if it is still the desired one.
    pub rejected: Option<Rejected>,
    /// The user's last request with the command line: the annotation, as it is written.
    pub asked: Option<String>,
    /// The latest accepted restart.
    pub restarted_at: Option<RestartTime>,
    /// A requested restart that has not been accepted yet.
    pub restart_request: Option<RestartTime>,
    /// True if nothing was ever recorded about it: its status was lost, or its nodes existed before it.
    pub unrecorded: bool,
    /// True if a fleet that was scaled to 0 is being filled again.
    pub scaled_to_zero: bool,
    /// The plan that the abort annotation names.
    pub abort: Option<PlanId>,
    /// The plan that the retry annotation names, unless that request was already used up.
    pub retry: Option<PlanId>,
    /// Why no rollout to the desired revision can start, in a sentence.
    pub invalid: Option<String>,
    /// What could not be applied, although everything else continues, in a sentence.
    pub not_applied: Option<String>,
    /// What admission does not let be in the fleet's own objects, in a sentence.
    pub reverted: Option<String>,
    /// What a set that has to be created or removed waits for, or what keeps a node that leaves, in a sentence.
    pub waits_for: Option<String>,
    /// Why it is not known which set serves, in a sentence. Nothing is done then.
    pub undecided: Option<String>,
    /// The set that the fleet's own Service selects, if it has one.
    pub selected: Option<SetName>,
    /// True if the spec has a `service` and the fleet has none of its own now: the Service is not there, or its name
    /// belongs to something else. Traffic cannot be moved then.
    pub lacks_service: bool,
    /// How new nodes take over, if a change creates any.
    pub strategy: Strategy,
    /// When new nodes take over.
    pub promotion: Promotion,
    /// True if a user requests the promotion of the desired revision.
    pub force_promote: bool,
    /// The desired `spec.unsafeCustomBuildID`; `None` if the build ID is generated.
    pub build_id: Option<BuildId>,
    /// The `unsafeCustomBuildID` of the active set; `None` if its build ID was generated.
    pub active_build_id: Option<BuildId>,
    /// How long a set is kept after it left service, in seconds.
    pub retire_delay_seconds: i64,
    /// The height at which old nodes halt (HardFork).
    pub halt_height: i64,
    /// The active rollout, if it creates a set of nodes.
    pub set_rollout: Option<SetRollout>,
    /// The cause of the active rollout, if there is one and it can still be abandoned. It has a plan, unless that is
    /// lost.
    pub under_way: Option<Cause>,
    /// All other sets of which any object exists.
    pub sets: BTreeMap<SetName, SetFacts>,
    /// The nodes of the active set, by ordinal.
    pub children: Vec<ChildFacts>,
    /// Names of nodes that are taken by other objects.
    pub conflicts: Vec<Conflict>,
    /// Pods of the active set that still run or terminate although their nodes were removed by scaling down.
    pub shutting_down: Vec<String>,
    /// The time that pods may still take to end whose nodes are gone.
    pub ending: Option<Wait>,
    /// The current hook of the fleet's own plan.
    pub at_hook: Option<AtHook>,
    /// The names of the hooks whose failure rolls the rollout back.
    pub rolling_back: Vec<String>,
    /// `inPlace.steps`; empty if they do not ascend.
    pub steps: Vec<IntOrString>,
    /// The step that its plan carries out, or stops after: an index into `steps`.
    pub step: Option<usize>,
    /// What revisions render to, by rollout hash and restart.
    pub renderings: BTreeMap<(RolloutHash, Option<RestartTime>), Rendering>,
}

impl FleetFacts {
    /// The existing nodes of the active set that are not surplus.
    pub fn wanted(&self) -> impl Iterator<Item = &ChildFacts> {
        self.children.iter().filter(|c| !c.surplus)
    }

    /// The ordinals below `replicas` that have no node and whose name is not taken.
    #[must_use]
    pub fn missing(&self) -> Vec<i32> {
        let children = self.children.iter().map(|c| c.ordinal);
        let taken: BTreeSet<i32> = children.chain(self.conflicts.iter().map(|c| c.ordinal)).collect();
        (0..self.replicas).filter(|ordinal| !taken.contains(ordinal)).collect()
    }

    /// True if a user requests that this plan is aborted.
    #[must_use]
    pub fn is_aborted(&self, plan: &Plan) -> bool {
        self.abort == plan.id
    }

    /// True if a user requests that this plan is retried.
    #[must_use]
    pub fn is_retried(&self, plan: &PlanId) -> bool {
        self.retry == *plan
    }

    /// True if a rejected target stays rejected: no other target is desired that could be tried.
    #[must_use]
    pub fn stays_rejected(&self, rejected: &Rejected) -> bool {
        self.requested == *rejected.hash || self.invalid.is_some()
    }

    /// True if a revision with this rollout hash is stored.
    #[must_use]
    pub fn is_known(&self, revision: &RolloutHash) -> bool {
        let first = self.renderings.range((revision.clone(), None)..).next();
        first.is_some_and(|((known, _), _)| known == revision)
    }

    /// Ordinals below this keep the current revision. It is 0 before the first completion, and under another build ID.
    #[must_use]
    pub fn held_below(&self) -> i32 {
        // Under another build ID the same content is another target, so there is no revision to hold nodes at.
        let other_id = self.build_id != self.active_build_id;
        if self.last_completed.is_none() || other_id { 0 } else { self.partition }
    }

    /// The revision for nodes outside a rollout: the desired one or, while that is rejected, not stored, or meant for
    /// another set, the current one.
    #[must_use]
    pub fn steady_revision(&self) -> &RolloutHash {
        let unusable =
            self.rejected.is_some() || !self.is_known(&self.requested) || self.is_for_another_set();
        self.last_completed.as_ref().filter(|_| unusable).unwrap_or(&self.requested)
    }

    /// The target of a rollout to a revision: the desired one or, once that was rolled back, the one that last
    /// completed.
    #[must_use]
    pub fn goal(&self) -> &RolloutHash {
        let rolled_back = self.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::RolledBack));
        self.last_completed.as_ref().filter(|_| rolled_back).unwrap_or(&self.requested)
    }

    /// The revision that a node's spec should have.
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

    /// True if the revision in a node's spec is stored.
    #[must_use]
    pub fn holds_known(&self, child: &ChildFacts) -> bool {
        child.spec_hash.as_ref().is_some_and(|hash| self.is_known(hash))
    }

    /// What the revision in a node's spec renders to under a restart.
    #[must_use]
    pub fn held_by(&self, child: &ChildFacts, restart: Option<&RestartTime>) -> Option<&Rendering> {
        self.rendering(child.spec_hash.as_ref()?, restart)
    }

    /// The restart that applies to a node. A node that the partition holds keeps what it runs, restarts included.
    #[must_use]
    pub fn restart_of<'a>(&self, child: &'a ChildFacts) -> Option<&'a RestartTime> {
        // Where a change makes another set, the partition is about no revision of these nodes.
        let is_in_place = !self.strategy.makes_set() || self.build_id.is_some();
        if is_in_place && child.ordinal < self.held_below() {
            child.own_restart.as_ref()
        } else {
            child.restart.as_ref()
        }
    }

    /// What a node should run.
    #[must_use]
    pub fn target_for(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> Option<&Rendering> {
        self.rendering(self.revision_for(child, rollout_target), self.restart_of(child))
    }

    /// How many nodes are moving or leaving while their main containers run. Nodes that are only down do not count.
    #[must_use]
    pub fn moving(&self, rollout_target: Option<&RolloutTarget>) -> i32 {
        let target = |c| rollout_target.and_then(|to| self.target_for(c, to)).map(|target| &target.hash);
        let existing = self.children.iter().filter(|c| c.is_moving(target(c))).count();
        (existing + self.shutting_down.len()) as i32
    }

    /// True if a node's spec and grant are what they should be, and it has not drifted.
    #[must_use]
    pub fn is_granted(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        child.spec_hash == *self.revision_for(child, rollout_target)
            && self.target_for(child, rollout_target).is_some_and(|t| child.granted == t.hash)
            && !child.state().is_drifted()
            // While its target is rejected, an abort takes down nothing.
            && (self.is_rejected_by_abort() || !matches!(child.state(), NodeState::InFlight(Flight::Kept, _)))
    }

    pub(super) fn is_rejected_by_abort(&self) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| rejected.ending() == Some(Ending::Aborted))
    }

    /// True if a node was observed to run what it should run.
    #[must_use]
    pub fn is_updated(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        self.is_granted(child, rollout_target)
            && !child.status_outdated
            && self
                .target_for(child, rollout_target)
                .is_some_and(|t| child.running == t.hash && t.image == child.running_image)
    }

    /// The number of disrupted nodes, including missing nodes and nodes that are removed by scaling down. A name that
    /// is taken by another object is not a node of this fleet and must not block the others. Nor must a node that never
    /// began because a name that it needs is taken.
    #[must_use]
    pub fn disrupted(&self) -> i32 {
        let existing = self.children.iter().filter(|c| c.counts_as_disrupted()).count();
        (existing + self.missing().len() + self.shutting_down.len()) as i32
    }

    /// True if the partition keeps a node away from the rollout's target: its revision, or a restart.
    #[must_use]
    pub fn is_held_back(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        let differs = |target: &RolloutHash| {
            self.revision_for(child, rollout_target) != target
                || self.restart_of(child) != child.restart.as_ref()
        };
        matches!(rollout_target, RolloutTarget::Revision(target) if differs(target))
    }

    /// True if the partition keeps nodes away from the rollout's target.
    #[must_use]
    pub fn differs_below_partition(&self, rollout_target: &RolloutTarget) -> bool {
        let differs = |target: &RolloutHash| {
            self.last_completed != *target || self.wanted().any(|c| self.is_held_back(c, rollout_target))
        };
        self.held_below() > 0 && matches!(rollout_target, RolloutTarget::Revision(target) if differs(target))
    }

    /// True if every desired node exists, runs what it should run, and serves, and no surplus node is left.
    #[must_use]
    pub fn is_converged(&self, rollout_target: &RolloutTarget) -> bool {
        self.is_converged_from(0, rollout_target)
    }

    /// As [`is_converged`](Self::is_converged), but nodes of lower ordinals may be missing or down: of these only what
    /// they run counts.
    #[must_use]
    pub fn is_converged_from(&self, ordinal: i32, rollout_target: &RolloutTarget) -> bool {
        self.replicas > 0
            && self.missing().iter().all(|missing| *missing < ordinal)
            && self.conflicts.iter().all(|conflict| conflict.ordinal < ordinal)
            && self.children.iter().all(|c| {
                let serves = c.ordinal < ordinal || !c.is_disrupted();
                !c.surplus && self.is_updated(c, rollout_target) && serves
            })
    }
}
