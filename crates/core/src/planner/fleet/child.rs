//! What is known of one node of a fleet.

use chrono::{DateTime, Utc};

use super::drain::Drain;
use super::topology::{Domain, Order};
use crate::api::{
    AtHook, GrantId, HookPoint, NodeName, PodTemplateHash, Problem, RestartTime, RolloutHash, TaskId,
};
use crate::planner::growth::Growth;
use crate::planner::waits::Wait;

/// One existing node of a fleet, as it was observed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct ChildFacts {
    /// Its name.
    pub name: NodeName,
    /// Its ordinal.
    pub ordinal: i32,
    /// True if its ordinal is beyond `replicas`: the fleet is being scaled down.
    pub surplus: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// How far it is with leaving.
    pub leave: LeaveFacts,
    /// The rollout hash of the revision in its spec; `None` if the spec cannot be read.
    pub spec_hash: Option<RolloutHash>,
    /// What it was granted.
    pub grant: GrantFacts,
    /// Its requested and observed restarts.
    pub restarts: RestartFacts,
    /// What its controller is doing.
    pub controller: ControllerFacts,
    /// Its pod.
    pub pod: PodFacts,
    /// Why it is not available.
    pub health: HealthFacts,
    /// What its sidecar reports; `None` if it has none.
    pub sidecar: Option<SidecarFacts>,
    /// The current hook of its plan.
    pub at_hook: Option<AtHook>,
    /// What is left to do until its claims have the desired sizes.
    pub growth: Growth,
    /// Its failure domain.
    pub domain: Domain,
    /// When it is updated, by `order`.
    pub order: Order,
}

/// How far a node is with leaving its fleet.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LeaveFacts {
    /// True if it has been asked to leave by a `removalID`.
    pub asked: bool,
    /// True if it has an active plan RemoveNode.
    pub by_plan: bool,
    /// True if its plan RemoveNode has begun a hook at `BeforeRemove`. That hook does not run twice.
    pub began_hook: bool,
    /// When its plan RemoveNode began.
    pub since: Option<DateTime<Utc>>,
    /// True if it has been asked to leave and its plan RemoveNode waits for nothing but its deletion.
    pub awaits_removal: bool,
}

/// What a node was granted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GrantFacts {
    /// `spec.grantedHash`.
    pub hash: Option<PodTemplateHash>,
    /// `spec.grantID`.
    pub id: Option<GrantId>,
    /// `status.spentGrantID`.
    pub spent_id: Option<GrantId>,
    /// The time that it has to become available, and to catch up, with what was granted.
    pub time: GrantTime,
    /// True if it has been available with what it was granted, now or before it went down.
    pub is_proven: bool,
    /// When it may be granted what is desired, if not now.
    pub again_at: Option<DateTime<Utc>>,
}

/// The restarts of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RestartFacts {
    /// The latest restart that was requested of its fleet or of the node.
    /// [`FleetFacts::restart_of`](super::FleetFacts::restart_of) is the one that applies to it.
    pub asked: Option<RestartTime>,
    /// The latest restart in its own annotation or status.
    pub told: Option<RestartTime>,
}

/// What a node's controller is doing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ControllerFacts {
    /// True if the node's spec cannot be read, so that its controller does nothing.
    pub unreadable: bool,
    /// True if the node's status is behind its generation, or may be because the outcome of a write to the node is
    /// unknown.
    pub status_outdated: bool,
    /// True if the node has an active plan NodeUpdate, RestartNode or MoveNode.
    pub rolling: bool,
    /// True if the node's spec suspends it, so that it does not run.
    pub suspended: bool,
}

/// A node's pod, as it was observed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodFacts {
    /// `status.podTemplateHash`: what it was observed to run.
    pub hash: Option<PodTemplateHash>,
    /// `status.currentImage`.
    pub image: String,
    /// True if somebody else changed its StatefulSet while it ran, and no rollout has ended since.
    pub was_edited: bool,
    /// True if it is Ready.
    pub ready: bool,
    /// Since when it is Ready.
    pub ready_since: Option<DateTime<Utc>>,
    /// True if it has been Ready for `minReadySeconds`.
    pub available: bool,
    /// True if it was ever Ready.
    pub ever_ready: bool,
    /// True if the node's phase is Failed.
    pub failed: bool,
    /// True if its main container runs although it is not Ready.
    pub runs: bool,
    /// Whether it has to be replaced, because its machine is being drained or its volumes grow.
    pub drain: Drain,
}

/// Why a node is not available.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HealthFacts {
    /// Why its sidecar cannot be reached, in a sentence; `None` if it can.
    pub unreachable: Option<String>,
    /// Why it is not available.
    pub problem: Option<Problem>,
    /// The time that its pod may still take to end or to become Ready, or that `minReadySeconds` lets it wait.
    pub wait: Option<Wait>,
}

/// The time that a node has to become available with its grant: `progressDeadlineSeconds` from when its old pod was
/// replaced, or from when the new one could not be created. What Kubernetes gives it ([`Wait`]) is not counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GrantTime {
    /// It has become so. Or it has no pod that was created for what was granted, or that pod is being deleted.
    #[default]
    None,
    /// Until then.
    Until(DateTime<Utc>),
    /// It is over.
    Over,
}

/// What a node's sidecar reports, and what it was asked to do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SidecarFacts {
    /// True if the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height, if it is known.
    pub height: Option<i64>,
    /// The task for which the application has halted; `None` if it has not.
    pub halted_for: Option<TaskId>,
    /// The halt height in the node's spec; 0 for none.
    pub halt_height: i64,
    /// The task that set the halt height.
    pub halt_task: Option<TaskId>,
    /// Why it cannot halt, as the sidecar reports it; `None` if it can.
    pub message: Option<String>,
}

impl ChildFacts {
    /// True if hooks of its first start are not done.
    #[must_use]
    pub fn is_at_first_start(&self) -> bool {
        let point = self.at_hook.as_ref().and_then(|at| at.point);
        matches!(point, Some(HookPoint::BeforeCreate | HookPoint::AfterCreate))
    }

    /// A node that is about to be created, at a revision and with a grant for what that revision renders to.
    #[must_use]
    pub fn to_be_created(
        name: NodeName,
        ordinal: i32,
        revision: RolloutHash,
        granted: PodTemplateHash,
        restart: Option<RestartTime>,
        domain: Domain,
    ) -> Self {
        ChildFacts {
            name,
            ordinal,
            surplus: false,
            terminating: false,
            leave: LeaveFacts::default(),
            spec_hash: Some(revision),
            grant: GrantFacts { hash: Some(granted), ..GrantFacts::default() },
            restarts: RestartFacts { asked: restart.clone(), told: restart },
            controller: ControllerFacts { status_outdated: true, ..ControllerFacts::default() },
            pod: PodFacts::default(),
            health: HealthFacts::default(),
            sidecar: None,
            at_hook: None,
            growth: Growth::Done,
            domain,
            order: Order::Any,
        }
    }

    /// The same node with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// True if it has converged to its grant.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.grant.id == self.grant.spent_id
    }

    /// True if it was asked to halt at a height.
    #[must_use]
    pub fn halt_is_requested(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|s| s.halt_height > 0 || s.halted_for.is_some())
    }

    /// True if it is available, the hooks of its first start are done, and its sidecar, if it has one, reports that it has
    /// caught up.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        let said = self.sidecar.as_ref().is_none_or(|s| s.caught_up && self.health.unreachable.is_none());
        self.pod.available && !self.terminating && !self.is_at_first_start() && said
    }

    /// True if its sidecar has reported a height and can be reached.
    #[must_use]
    pub fn has_reported_height(&self) -> bool {
        self.health.unreachable.is_none() && self.sidecar.as_ref().is_some_and(|s| s.height.is_some())
    }

    /// True if its main container was observed to run now, so that it may do its work, Ready or not. `pod.hash`
    /// does not show that: it is kept while the pod is recreated.
    #[must_use]
    pub fn main_container_runs(&self) -> bool {
        !self.terminating && (self.pod.ready || self.pod.runs)
    }

    /// True if all containers of its pod were observed to run now, as far as is known.
    #[must_use]
    pub fn has_running_pod(&self) -> bool {
        self.main_container_runs() && (self.pod.ready || !self.pod.failed)
    }

    /// True if it certainly does not serve. A node whose sidecar cannot be reached may still serve, if it was ever Ready.
    #[must_use]
    pub fn is_down(&self) -> bool {
        !self.pod.ready && (self.health.unreachable.is_none() || !self.pod.ever_ready)
    }

    /// True if it can be asked to leave and has not been.
    #[must_use]
    pub fn has_reachable_sidecar(&self) -> bool {
        !self.leave.asked && !self.controller.unreadable
    }

    /// True if the node can be deleted now. A node that is down and has observed its `removalID` without starting a
    /// RemoveNode plan cannot start one, so it is deleted at once. If it has such a plan, the plan has to finish first.
    #[must_use]
    pub fn can_be_deleted(&self) -> bool {
        let cannot =
            self.leave.asked && !self.controller.status_outdated && self.is_down() && !self.leave.by_plan;
        self.leave.awaits_removal || self.controller.unreadable || cannot
    }
}

/// A node's name that is taken by an object that does not belong to the fleet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// The name.
    pub name: NodeName,
    /// Its ordinal.
    pub ordinal: i32,
    /// What has the name, in a sentence.
    pub message: String,
}
