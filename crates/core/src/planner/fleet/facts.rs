//! The facts that every decision about a fleet is based on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::api::IntOrString;

use super::blocker::Blocker;
use super::child::{ChildFacts, Conflict};
use super::decision::{Cause, RolloutTarget, Strategy};
use super::gate::{Gate, Limits};
use super::sets::{SetFacts, SetRollout};
use super::state::{Flight, NodeState};
use super::topology::Domain;
use crate::api::{
    AtHook, BuildId, Ending, Groups, HookPoint, NodeDeploymentStatus, OnStall, PlanId, PodTemplateHash,
    Promotion, Rejected, RestartTime, RolloutHash, SetName, Topology,
};
use crate::engine::Plan;
use crate::engine::sentence::some_of;
use crate::planner::waits::Wait;

/// What a revision renders to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rendering {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image.
    pub image: String,
}

/// The pods of one StatefulSet, where a fleet consists of the pods of existing StatefulSets.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The ordinals of its pods in the fleet.
    pub ordinals: Range<i32>,
    /// True if a pod is created only once all pods of lower ordinals are Ready.
    pub is_ordered: bool,
    /// The target that its controller has not completed: `status.currentRevision` is an earlier one.
    pub incomplete: Option<RolloutHash>,
    /// What the fleet's targets are for it, by rollout hash and restart.
    pub renderings: BTreeMap<(RolloutHash, Option<RestartTime>), Rendering>,
}

/// What a fleet consists of.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum FleetKind {
    /// Nodes: a NodeDeployment.
    #[default]
    Nodes,
    /// The pods of existing StatefulSets: a StatefulSetRollout.
    Pods,
}

impl FleetKind {
    /// The short name of its kind on the command line.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Nodes => "nd",
            Self::Pods => "ssr",
        }
    }
}

/// The facts that every decision about a fleet is based on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct FleetFacts {
    /// What it consists of.
    pub kind: FleetKind,
    /// Its StatefulSets, in the order in which they are updated. Empty if it consists of nodes.
    pub groups: Vec<Group>,
    /// Its spec.
    pub spec: SpecFacts,
    /// True if the fleet is being deleted.
    pub terminating: bool,
    /// The desired rollout hash.
    pub requested: RolloutHash,
    /// What its annotations and `forcePromote` request.
    pub requests: RequestFacts,
    /// What its status has recorded.
    pub record: RecordFacts,
    /// The active rollout.
    pub rollout: RolloutFacts,
    /// What blocks it.
    pub findings: Findings,
    /// Its own Service.
    pub service: ServiceFacts,
    /// The active set. Its nodes are in `children`.
    pub set: SetName,
    /// All other sets of which any object exists.
    pub sets: BTreeMap<SetName, SetFacts>,
    /// The nodes of the active set, by ordinal.
    pub children: Vec<ChildFacts>,
    /// Names of nodes that are taken by other objects.
    pub conflicts: Vec<Conflict>,
    /// Pods of the active set that still run or terminate although their nodes were removed by scaling down.
    pub shutting_down: Vec<String>,
    /// The failure domains of those, by name, if the fleet has a topology.
    pub ending_domains: BTreeMap<String, Domain>,
    /// The time that pods may still take to end whose nodes are gone.
    pub ending: Option<Wait>,
    /// What revisions render to, by rollout hash and restart.
    pub renderings: BTreeMap<(RolloutHash, Option<RestartTime>), Rendering>,
}

/// A fleet's spec.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct SpecFacts {
    /// `spec.replicas`.
    pub replicas: i32,
    /// How many nodes may be disrupted at once.
    pub max_unavailable: i32,
    /// `inPlace.topology`.
    pub topology: Option<Topology>,
    /// Ordinals below it keep the current revision.
    pub partition: i32,
    /// `spec.paused`.
    pub paused: bool,
    /// What a stall leads to.
    pub on_stall: OnStall,
    /// True if other fleets have to be up to date first.
    pub has_predecessors: bool,
    /// `updateStrategy.progressDeadlineSeconds`.
    pub deadline_seconds: i64,
    /// How new nodes take over, if a change creates any.
    pub strategy: Strategy,
    /// When new nodes take over.
    pub promotion: Promotion,
    /// The desired `spec.unsafeCustomBuildID`; `None` if the build ID is generated.
    pub build_id: Option<BuildId>,
    /// How long a set is kept after it left service, in seconds.
    pub retire_delay_seconds: i64,
    /// The height at which old nodes halt (HardFork).
    pub halt_height: i64,
    /// `creation.maxInitializing`.
    pub max_initializing: Option<i32>,
    /// The points after a creation of nodes at which the fleet has hooks: those in `HookPoint::OF_NEW_NODES`.
    pub creation_hooks: Vec<HookPoint>,
    /// `inPlace.steps`.
    pub steps: Vec<IntOrString>,
    /// Whether one StatefulSet is finished before the next one starts.
    pub groups: Groups,
}

/// The requests of a user, in addition to the desired state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestFacts {
    /// The last request with the command line: the annotation, as it is written.
    pub asked: Option<String>,
    /// A requested restart that has not been accepted yet.
    pub restart: Option<RestartTime>,
    /// The plan that the abort annotation names.
    pub abort: Option<PlanId>,
    /// True if that plan is not only aborted, but rolled back.
    pub abort_rolls_back: bool,
    /// The plan that the retry annotation names, unless that request was already used up.
    pub retry: Option<PlanId>,
    /// The plan whose window a user opens.
    pub open_window: Option<PlanId>,
    /// True if the promotion of the desired revision is requested.
    pub force_promote: bool,
}

/// What a fleet's status has recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFacts {
    /// `status.replicas`: how many nodes of the active set existed when the status was last written.
    pub existed: i32,
    /// True if the status reports a stall.
    pub stalled: bool,
    /// The rollout hash that last completed; `None` before the first completion.
    pub last_completed: Option<RolloutHash>,
    /// The target that is not retried by itself, if it is still the desired one.
    pub rejected: Option<Rejected>,
    /// True if the desired revision differs from that only in the data of ConfigMaps and Secrets.
    pub differs_in_config_only: bool,
    /// The latest accepted restart.
    pub restarted_at: Option<RestartTime>,
    /// True if nothing was ever recorded: the status was lost, or the nodes existed before it.
    pub unrecorded: bool,
    /// True if a fleet that was scaled to 0 is being filled again.
    pub scaled_to_zero: bool,
    /// The `unsafeCustomBuildID` of the active set; `None` if its build ID was generated.
    pub active_build_id: Option<BuildId>,
}

/// The rollout that a fleet's status has.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rollout {
    /// There is none.
    #[default]
    None,
    /// The nodes of the active set move.
    InPlace {
        /// Why it began.
        cause: Cause,
    },
    /// A new set of nodes replaces the active one.
    Replacing {
        /// The sets, and how far it is.
        set: SetRollout,
        /// Why it began.
        cause: Cause,
    },
}

impl Rollout {
    /// The rollout of a status.
    #[must_use]
    pub fn of(status: &NodeDeploymentStatus) -> Self {
        let Some(recorded) = &status.rollout else { return Self::None };
        let cause = recorded.cause.parse().unwrap_or(Cause::TemplateChanged);
        match SetRollout::of(status) {
            Some(set) => Self::Replacing { set, cause },
            None => Self::InPlace { cause },
        }
    }

    /// The rollout, if it creates a set of nodes.
    #[must_use]
    pub fn set(&self) -> Option<&SetRollout> {
        match self {
            Self::Replacing { set, .. } => Some(set),
            Self::None | Self::InPlace { .. } => None,
        }
    }

    /// Its cause, if there is a rollout and it can still be abandoned.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::InPlace { cause } => Some(*cause),
            Self::Replacing { set, cause } => set.is_revocable().then_some(*cause),
            Self::None => None,
        }
    }
}

/// The active rollout of a fleet, and how far its plan is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutFacts {
    /// The rollout.
    pub now: Rollout,
    /// The current hook of the fleet's own plan.
    pub at_hook: Option<AtHook>,
    /// The names of the hooks whose failure rolls it back.
    pub rolling_back: Vec<String>,
    /// Whether it may take down nodes that serve. Without a rollout: whether one that begins now may.
    pub gate: Gate,
    /// How many fleets may roll at the same time.
    pub limits: Limits,
    /// The step that its plan carries out, or stops after: an index into `spec.steps`.
    pub step: Option<usize>,
}

/// What blocks a fleet, each as a sentence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Why it is not known which set is active. Windlass does nothing then.
    pub undecided: Option<String>,
    /// Why no rollout to the desired revision can start.
    pub blocker: Option<Blocker>,
    /// What could not be applied, although everything else continues.
    pub not_applied: Option<String>,
    /// The fields of the fleet's own objects that admission reverts.
    pub reverted: Option<String>,
    /// What a set that has to be created or removed waits for, or what keeps a node that leaves.
    pub waits_for: Option<String>,
}

/// A fleet's own Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFacts {
    /// The set that it selects, if there is one.
    pub selected: Option<SetName>,
    /// True if the spec has a `service` and the fleet has no Service now: the Service does not exist, or its name
    /// belongs to another object. Traffic cannot be moved then.
    pub is_missing: bool,
}

impl FleetFacts {
    /// The same facts with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The existing nodes of the active set that are not surplus.
    pub fn wanted(&self) -> impl Iterator<Item = &ChildFacts> {
        self.children.iter().filter(|c| !c.surplus)
    }

    /// The ordinals below `replicas` that have no node and whose name is not taken.
    #[must_use]
    pub fn missing(&self) -> Vec<i32> {
        let children = self.children.iter().map(|c| c.ordinal);
        let taken: BTreeSet<i32> = children.chain(self.conflicts.iter().map(|c| c.ordinal)).collect();
        (0..self.spec.replicas).filter(|ordinal| !taken.contains(ordinal)).collect()
    }

    /// True if the active set lacks nodes that never existed: a higher number of replicas adds them.
    #[must_use]
    pub fn adds_nodes(&self) -> bool {
        !self.active_set_is_removed()
            && self.missing().into_iter().any(|ordinal| ordinal >= self.record.existed)
    }

    /// Which nodes are not ready, in a sentence; `None` if all are, and the hooks of their first start are done.
    #[must_use]
    pub fn waits_for_nodes(&self) -> Option<String> {
        let is_ready = |c: &&ChildFacts| c.pod.available && !c.terminating && !c.is_at_first_start();
        let unready: Vec<&str> = self.wanted().filter(|c| !is_ready(c)).map(|c| c.name.as_str()).collect();
        if !unready.is_empty() {
            return Some(format!("waiting for {} to be ready", some_of(&unready)));
        }
        (!self.missing().is_empty()).then(|| "waiting for new nodes to be created".to_owned())
    }

    /// True if a user requests that this plan is aborted.
    #[must_use]
    pub fn is_aborted(&self, plan: &Plan) -> bool {
        self.requests.abort == plan.id
    }

    /// True if a user requests that this plan is retried.
    #[must_use]
    pub fn is_retried(&self, plan: &PlanId) -> bool {
        self.requests.retry == *plan
    }

    /// True if a rejected target stays rejected: no other target is desired that could be tried.
    #[must_use]
    pub fn stays_rejected(&self, rejected: &Rejected) -> bool {
        self.requested == *rejected.hash || self.findings.blocker.is_some()
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
        let other_id = self.spec.build_id != self.record.active_build_id;
        if self.record.last_completed.is_none() || other_id { 0 } else { self.spec.partition }
    }

    /// The revision for nodes outside a rollout: the desired one or, while that is rejected, not stored, or meant for
    /// another set, the current one.
    #[must_use]
    pub fn steady_revision(&self) -> &RolloutHash {
        let unusable =
            self.record.rejected.is_some() || !self.is_known(&self.requested) || self.is_for_another_set();
        self.record.last_completed.as_ref().filter(|_| unusable).unwrap_or(&self.requested)
    }

    /// The target of a rollout to a revision: the desired one or, once that was rolled back, the one that last
    /// completed.
    #[must_use]
    pub fn goal(&self) -> &RolloutHash {
        let rolled_back =
            self.record.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::RolledBack));
        self.record.last_completed.as_ref().filter(|_| rolled_back).unwrap_or(&self.requested)
    }

    /// The revision that a node's spec should have.
    #[must_use]
    pub fn revision_for<'a>(
        &'a self,
        child: &'a ChildFacts,
        rollout_target: &'a RolloutTarget,
    ) -> &'a RolloutHash {
        match (rollout_target, &self.record.last_completed) {
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
        self.rendering_for(child, child.spec_hash.as_ref()?, restart)
    }

    /// What a revision renders to for a node under a restart.
    fn rendering_for(
        &self,
        child: &ChildFacts,
        revision: &RolloutHash,
        restart: Option<&RestartTime>,
    ) -> Option<&Rendering> {
        match self.group_of(child) {
            Some(group) => group.renderings.get(&(revision.clone(), restart.cloned())),
            None => self.rendering(revision, restart),
        }
    }

    /// The StatefulSet of a pod, where a fleet consists of pods.
    #[must_use]
    pub fn group_of(&self, child: &ChildFacts) -> Option<&Group> {
        self.groups.iter().find(|group| group.ordinals.contains(&child.ordinal))
    }

    /// True if a pod of a StatefulSet has an active plan.
    #[must_use]
    pub fn has_plan_in(&self, group: &Group) -> bool {
        self.children.iter().any(|child| group.ordinals.contains(&child.ordinal) && child.controller.rolling)
    }

    /// True if a node that is taken down now would not come back, because a pod of a lower ordinal is not Ready.
    #[must_use]
    pub fn awaits_lower(&self, child: &ChildFacts) -> bool {
        let lower = self
            .group_of(child)
            .filter(|group| group.is_ordered)
            .map(|group| group.ordinals.start..child.ordinal);
        lower.is_some_and(|lower| {
            self.children.iter().any(|other| lower.contains(&other.ordinal) && !other.pod.ready)
        })
    }

    /// The lowest ordinal of the nodes that may move now. With [`Groups::OneAtATime`] it is that of the first StatefulSet
    /// that is not finished.
    #[must_use]
    pub fn moves_from(&self, rollout_target: &RolloutTarget) -> i32 {
        let is_unfinished = |group: &&Group| {
            let of_group = self.children.iter().filter(|child| group.ordinals.contains(&child.ordinal));
            of_group.clone().any(|child| !self.is_updated(child, rollout_target) || child.is_disrupted())
        };
        match self.spec.groups {
            Groups::Together => 0,
            Groups::OneAtATime => {
                self.groups.iter().find(is_unfinished).map_or(0, |group| group.ordinals.start)
            }
        }
    }

    /// The restart that applies to a node. A node that the partition holds keeps what it runs, restarts included.
    #[must_use]
    pub fn restart_of<'a>(&self, child: &'a ChildFacts) -> Option<&'a RestartTime> {
        // Where a change makes another set, the partition is about no revision of these nodes.
        let is_in_place = !self.spec.strategy.creates_set() || self.spec.build_id.is_some();
        if is_in_place && child.ordinal < self.held_below() {
            child.restarts.told.as_ref()
        } else {
            child.restarts.asked.as_ref()
        }
    }

    /// What a node should run.
    #[must_use]
    pub fn target_for(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> Option<&Rendering> {
        self.rendering_for(child, self.revision_for(child, rollout_target), self.restart_of(child))
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
            && self.target_for(child, rollout_target).is_some_and(|t| child.grant.hash == t.hash)
            && !child.state().is_drifted()
            // While its target is rejected, an abort takes down nothing.
            && (self.is_rejected_by_abort() || !matches!(child.state(), NodeState::InFlight(Flight::Kept, _)))
    }

    pub(super) fn is_rejected_by_abort(&self) -> bool {
        self.record.rejected.as_ref().is_some_and(|rejected| rejected.ending() == Some(Ending::Aborted))
    }

    /// True if the rollout is about volume claims that grow.
    #[must_use]
    pub fn grows_claims(&self) -> bool {
        self.rollout.now.cause() == Some(Cause::ClaimsGrown)
    }

    /// True if claims of nodes are smaller than desired, and may grow.
    #[must_use]
    pub fn needs_growth(&self) -> bool {
        self.findings.blocker.is_none() && self.wanted().any(|child| child.growth.is_pending())
    }

    /// True if a node was observed to run what it should run. While claims grow, its claims have to have grown.
    #[must_use]
    pub fn is_updated(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        self.is_granted(child, rollout_target)
            && !(self.grows_claims() && child.growth.is_pending())
            && !child.controller.status_outdated
            && self
                .target_for(child, rollout_target)
                .is_some_and(|t| child.pod.hash == t.hash && t.image == child.pod.image)
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
                || self.restart_of(child) != child.restarts.asked.as_ref()
        };
        matches!(rollout_target, RolloutTarget::Revision(target) if differs(target))
    }

    /// True if the partition keeps nodes away from the rollout's target.
    #[must_use]
    pub fn differs_below_partition(&self, rollout_target: &RolloutTarget) -> bool {
        let differs = |target: &RolloutHash| {
            self.record.last_completed != *target
                || self.wanted().any(|c| self.is_held_back(c, rollout_target))
        };
        self.held_below() > 0 && matches!(rollout_target, RolloutTarget::Revision(target) if differs(target))
    }

    /// True if no StatefulSet has to complete this target.
    #[must_use]
    pub fn is_completed(&self, rollout_target: &RolloutTarget) -> bool {
        let RolloutTarget::Revision(target) = rollout_target else { return true };
        self.groups.iter().all(|group| group.incomplete != *target)
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
        self.spec.replicas > 0
            && self.is_completed(rollout_target)
            && self.missing().iter().all(|missing| *missing < ordinal)
            && self.conflicts.iter().all(|conflict| conflict.ordinal < ordinal)
            && self.children.iter().all(|c| {
                let serves = c.ordinal < ordinal || !c.is_disrupted();
                !c.surplus && self.is_updated(c, rollout_target) && serves
            })
    }
}
