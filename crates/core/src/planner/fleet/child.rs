//! What is known of one node of a fleet, and the states that the wave counts: in flight, disrupted, drifted.

use chrono::{DateTime, Utc};

use crate::api::{
    AtHook, GrantId, NodeName, PodTemplateHash, Problem, Reason, RestartTime, RolloutHash, TaskId,
};
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
    /// True if it has been asked to leave by a `removalID`.
    pub asked_to_leave: bool,
    /// True if it has an active plan RemoveNode.
    pub leaves_by_plan: bool,
    /// True if its plan RemoveNode has begun a hook at `BeforeRemove`. That hook does not run twice.
    pub took_leave: bool,
    /// When its plan RemoveNode began.
    pub leaves_since: Option<DateTime<Utc>>,
    /// True if it has been asked to leave and its plan RemoveNode waits for nothing but its deletion.
    pub awaits_removal: bool,
    /// True if its spec cannot be read, so that its controller does nothing.
    pub unreadable: bool,
    /// True if its status is behind its generation, or may be because the outcome of a write to the node is unknown.
    pub status_outdated: bool,
    /// The rollout hash of the revision in its spec; `None` if the spec cannot be read.
    pub spec_hash: Option<RolloutHash>,
    /// `spec.grantedHash`.
    pub granted: Option<PodTemplateHash>,
    /// `spec.grantID`.
    pub grant_id: Option<GrantId>,
    /// `status.spentGrantID`.
    pub spent_id: Option<GrantId>,
    /// The latest restart that was asked of its fleet or of itself. [`FleetFacts::restart_of`](super::FleetFacts::restart_of)
    /// is the one that applies to it.
    pub restart: Option<RestartTime>,
    /// The latest restart that it was told of.
    pub own_restart: Option<RestartTime>,
    /// `status.podTemplateHash`: what its pod was observed to run.
    pub running: Option<PodTemplateHash>,
    /// `status.currentImage`.
    pub running_image: String,
    /// True if it has an active plan NodeUpdate or RestartNode.
    pub rolling: bool,
    /// True if somebody else changed its StatefulSet under its running pod, and no rollout has ended since.
    pub was_edited: bool,
    /// True if it is Ready.
    pub ready: bool,
    /// Since when it is Ready.
    pub ready_since: Option<DateTime<Utc>>,
    /// True if it has been Ready for `minReadySeconds`.
    pub available: bool,
    /// True if it was ever Ready.
    pub ever_ready: bool,
    /// True if its phase is Failed.
    pub failed: bool,
    /// True if its main container runs although it is not Ready.
    pub pod_runs: bool,
    /// True if its spec suspends it, so that it does not run.
    pub suspended: bool,
    /// Why its sidecar cannot be reached, in a sentence; `None` if it can.
    pub unreachable: Option<String>,
    /// Why it does not serve.
    pub problem: Option<Problem>,
    /// The time that its pod may still take to end or to become Ready, or that `minReadySeconds` lets it wait.
    pub wait: Option<Wait>,
    /// The time that it has to become available, and to catch up, with what was granted.
    pub grant_time: GrantTime,
    /// True if it has been available with what it was granted, now or before it went down.
    pub is_proven: bool,
    /// What its sidecar reports; `None` if it has none.
    pub sidecar: Option<SidecarFacts>,
    /// The current hook of its plan.
    pub at_hook: Option<AtHook>,
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
    /// The height that the node's spec asks it to halt at; 0 for none.
    pub halt_height: i64,
    /// The task for which the spec asks that.
    pub halt_task: Option<TaskId>,
    /// Why it cannot halt, as the sidecar reports it; `None` if it can.
    pub message: Option<String>,
}

impl ChildFacts {
    /// A node that is about to be created, at a revision and with a grant for what that revision renders to.
    #[must_use]
    pub fn to_be_made(
        name: NodeName,
        ordinal: i32,
        revision: RolloutHash,
        granted: PodTemplateHash,
        restart: Option<RestartTime>,
    ) -> Self {
        Self {
            name,
            ordinal,
            surplus: false,
            terminating: false,
            asked_to_leave: false,
            leaves_by_plan: false,
            took_leave: false,
            leaves_since: None,
            awaits_removal: false,
            unreadable: false,
            status_outdated: true,
            spec_hash: Some(revision),
            granted: Some(granted),
            grant_id: None,
            spent_id: None,
            own_restart: restart.clone(),
            restart,
            running: None,
            running_image: String::new(),
            rolling: false,
            was_edited: false,
            ready: false,
            ready_since: None,
            available: false,
            ever_ready: false,
            failed: false,
            pod_runs: false,
            suspended: false,
            unreachable: None,
            problem: None,
            wait: None,
            grant_time: GrantTime::None,
            is_proven: false,
            sidecar: None,
            at_hook: None,
        }
    }

    /// True if it has converged to its grant.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.grant_id == self.spent_id
    }

    /// True if it was asked to halt at a height.
    #[must_use]
    pub fn is_asked_to_halt(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|s| s.halt_height > 0 || s.halted_for.is_some())
    }

    /// True if it is available and, if it has a sidecar, the sidecar reports that it has caught up.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        let said = self.sidecar.as_ref().is_none_or(|s| s.caught_up && self.unreachable.is_none());
        self.available && !self.terminating && said
    }

    /// True if its sidecar has reported a height and can be reached.
    #[must_use]
    pub fn has_said_height(&self) -> bool {
        self.unreachable.is_none() && self.sidecar.as_ref().is_some_and(|s| s.height.is_some())
    }

    /// True if its main container was observed to run now, so that it may do its work, Ready or not. The hash in
    /// `running` does not show that: it is kept while the pod is recreated.
    #[must_use]
    pub fn main_container_runs(&self) -> bool {
        !self.terminating && (self.ready || self.pod_runs)
    }

    /// True if all containers of its pod were observed to run now, as far as is known.
    #[must_use]
    pub fn has_running_pod(&self) -> bool {
        self.main_container_runs() && (self.ready || !self.failed)
    }

    /// True if its main container runs, it is not in flight, and it needs a new grant because it does not run what it
    /// was granted.
    #[must_use]
    pub fn is_drifted(&self) -> bool {
        self.main_container_runs()
            && !self.status_outdated
            && !self.rolling
            && self.is_spent()
            && self.running != self.granted
    }

    /// True if it is moving to another template, or about to.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        !self.is_drifted() && (self.status_outdated || self.granted != self.running || self.rolling)
    }

    /// True if it is in flight, terminating, asked to leave, not available, or its sidecar cannot be reached. A node
    /// that has drifted still serves and is not disrupted for that reason.
    #[must_use]
    pub fn is_disrupted(&self) -> bool {
        self.is_in_flight() || !self.is_serving()
    }

    /// True if it is available and not leaving. A node whose sidecar cannot be reached does not count as serving.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.is_up() && !self.asked_to_leave
    }

    fn is_up(&self) -> bool {
        self.available && !self.terminating && self.unreachable.is_none()
    }

    /// True if it is disrupted for another reason than being asked to leave.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.is_in_flight() || !self.is_up()
    }

    /// True if its controller holds it and it has never run anything: the name of one of its own objects is taken, or
    /// its spec cannot be carried out. Like a node whose own name is taken, it takes no room in the wave: it never
    /// served, and nothing that is granted to it changes that.
    #[must_use]
    pub fn never_began(&self) -> bool {
        let is_held = self.problem.as_ref().is_some_and(|p| p.reason == Reason::InvalidSpec.as_ref());
        let ran = self.ever_ready || self.ready || self.pod_runs || self.running.is_some();
        is_held && !ran && !self.rolling && !self.status_outdated && !self.terminating
    }

    /// True if it is not Ready and does not move before it is granted something else than this: it has spent its grant,
    /// or its main container runs what it was granted, and it should run that no longer, or should go. Such a node is down,
    /// and no move of it is under way that others would have to wait for.
    pub(super) fn stands_still(&self, target: Option<&PodTemplateHash>) -> bool {
        let has_arrived = self.main_container_runs() && self.running == self.granted;
        let holds_other = self.surplus || target.is_some_and(|target| self.granted != *target);
        !self.ready && !self.status_outdated && (self.is_spent() || (has_arrived && holds_other))
    }

    /// True if an abort granted it another hash than its pod runs, and its executor keeps that pod. The pod was replaced
    /// after the abort was decided.
    #[must_use]
    pub fn kept_other_pod(&self) -> bool {
        let is_by_abort = self.grant_id.as_ref().is_some_and(GrantId::is_by_abort);
        let stands = !self.is_spent() && !self.rolling && !self.status_outdated && !self.terminating;
        is_by_abort && stands && self.running != self.granted
    }

    /// True if it leaves, its main container was observed to run, and nothing else counts it: it is being deleted, or it
    /// is not Ready and may be deleted at any time.
    #[must_use]
    pub fn leaves_running(&self) -> bool {
        let is_let_go = self.asked_to_leave && !self.ready;
        (self.ready || self.pod_runs) && (self.terminating || is_let_go)
    }

    /// True if it is in flight and its executor moves it: others wait for it to reach its grant. `target`: what it should
    /// run, if that is known.
    #[must_use]
    pub fn is_moving(&self, target: Option<&PodTemplateHash>) -> bool {
        self.is_in_flight() && !self.never_began() && !self.stands_still(target)
    }

    /// True if it takes room in the wave.
    #[must_use]
    pub fn counts_as_disrupted(&self) -> bool {
        self.is_disrupted() && !self.never_began()
    }

    /// True if it stands still, its sidecar cannot be reached, and its pod is not Ready.
    #[must_use]
    pub fn is_mute(&self) -> bool {
        self.unreachable.is_some() && !self.ready && !self.is_in_flight() && self.counts_as_disrupted()
    }

    /// True if it certainly does not serve. A node whose sidecar cannot be reached may still serve.
    #[must_use]
    pub fn is_down(&self) -> bool {
        !self.ready && self.unreachable.is_none()
    }

    /// True if it can be asked to leave and has not been.
    #[must_use]
    pub fn can_be_asked(&self) -> bool {
        !self.asked_to_leave && !self.unreadable
    }

    /// True if the node can be deleted now. A node that is down and has observed its `removalID` without starting a
    /// RemoveNode plan cannot start one, so it is deleted at once. If it has such a plan, the plan has to finish first.
    #[must_use]
    pub fn can_be_deleted(&self) -> bool {
        let cannot = self.asked_to_leave && !self.status_outdated && self.is_down() && !self.leaves_by_plan;
        self.awaits_removal || self.unreadable || cannot
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
