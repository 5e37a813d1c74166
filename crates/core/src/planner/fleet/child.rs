//! What is known of one node of a fleet, in the words that the wave is counted in: in flight, disrupted, drifted.

use chrono::{DateTime, Utc};

use crate::api::{AtHook, GrantId, NodeName, PodTemplateHash, Problem, RestartTime, RolloutHash, TaskId};

/// One existing node of a fleet, as it was observed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct ChildFacts {
    /// Its name.
    pub name: NodeName,
    /// Its ordinal.
    pub ordinal: i32,
    /// Whether its ordinal is beyond `replicas`: it is being scaled away.
    pub surplus: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it is asked to leave.
    pub asked_to_leave: bool,
    /// Whether it has a plan by which it leaves, and that is active.
    pub leaves_by_plan: bool,
    /// Whether it is, and its plan waits for nothing but to be deleted for that.
    pub awaits_removal: bool,
    /// Whether its spec cannot be read, so that it does nothing.
    pub unreadable: bool,
    /// Whether its status is behind its generation, or may be: a write to it is out whose answer never came.
    pub status_outdated: bool,
    /// The rollout hash of the revision that its spec holds; none where the spec cannot be read.
    pub spec_hash: Option<RolloutHash>,
    /// `spec.grantedHash`.
    pub granted: Option<PodTemplateHash>,
    /// `spec.grantID`.
    pub grant_id: Option<GrantId>,
    /// `status.spentGrantID`.
    pub spent_id: Option<GrantId>,
    /// The latest restart that it obeys.
    pub restart: Option<RestartTime>,
    /// `status.podTemplateHash`: what its pod was observed to run.
    pub running: Option<PodTemplateHash>,
    /// `status.currentImage`.
    pub running_image: String,
    /// Whether a NodeUpdate or RestartNode plan of its own is active.
    pub rolling: bool,
    /// Whether somebody changed its StatefulSet under its running pod, and no rollout has ended since.
    pub was_edited: bool,
    /// Whether it is Ready.
    pub ready: bool,
    /// Since when.
    pub ready_since: Option<DateTime<Utc>>,
    /// Whether it has been Ready for `minReadySeconds`.
    pub available: bool,
    /// Whether it was ever Ready.
    pub ever_ready: bool,
    /// Whether its phase is Failed.
    pub failed: bool,
    /// Whether its main container runs although it is not Ready.
    pub pod_runs: bool,
    /// Why its sidecar cannot be reached, in a sentence, if so.
    pub unreachable: Option<String>,
    /// Why it does not serve.
    pub problem: Option<Problem>,
    /// What its sidecar says; `None` where it has none.
    pub sidecar: Option<SidecarFacts>,
    /// The hook that its plan is at.
    pub at_hook: Option<AtHook>,
}

/// What is known through a node's sidecar, and what it was asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SidecarFacts {
    /// Whether the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height, where it is known.
    pub height: Option<i64>,
    /// The task under which the application has halted; none where it has not.
    pub halted_for: Option<TaskId>,
    /// The height that the node's spec asks it to halt at; 0 for none.
    pub halt_height: i64,
    /// The task under which it asks.
    pub halt_task: Option<TaskId>,
    /// Why it cannot halt, in the sidecar's words, if so.
    pub message: Option<String>,
}

impl ChildFacts {
    /// A node that is made a moment from now, at a revision and with a grant for what that renders to.
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
            awaits_removal: false,
            unreadable: false,
            status_outdated: true,
            spec_hash: Some(revision),
            granted: Some(granted),
            grant_id: None,
            spent_id: None,
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
            unreachable: None,
            problem: None,
            sidecar: None,
            at_hook: None,
        }
    }

    /// Whether its grant was converged to.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.grant_id == self.spent_id
    }

    /// Whether it was asked to halt at a height.
    #[must_use]
    pub fn is_asked_to_halt(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|s| s.halt_height > 0 || s.halted_for.is_some())
    }

    /// Available, and, where it has a sidecar, caught up by what that says.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        let said = self.sidecar.as_ref().is_none_or(|s| s.caught_up && self.unreachable.is_none());
        self.available && !self.terminating && said
    }

    /// Whether its sidecar has said a height, and can be asked.
    #[must_use]
    pub fn has_said_height(&self) -> bool {
        self.unreachable.is_none() && self.sidecar.as_ref().is_some_and(|s| s.height.is_some())
    }

    /// Whether its main container was seen to run now. What a node was observed to run is kept while its pod is made
    /// anew; that is not running.
    #[must_use]
    pub fn has_running_pod(&self) -> bool {
        !self.terminating && (self.ready || (self.pod_runs && !self.failed))
    }

    /// Serving, not in flight, and in need of a new grant.
    #[must_use]
    pub fn is_drifted(&self) -> bool {
        self.available
            && !self.terminating
            && !self.status_outdated
            && !self.rolling
            && self.is_spent()
            && self.running != self.granted
    }

    /// Moving, or about to.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        !self.is_drifted() && (self.status_outdated || self.granted != self.running || self.rolling)
    }

    /// In flight, terminating, asked to leave or not available. What drifted serves, unless its sidecar cannot be reached.
    #[must_use]
    pub fn is_disrupted(&self) -> bool {
        self.is_in_flight() || !self.is_serving()
    }

    /// Available, and not leaving. A node whose sidecar cannot be reached counts as down.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.is_up() && !self.asked_to_leave
    }

    fn is_up(&self) -> bool {
        self.available && !self.terminating && self.unreachable.is_none()
    }

    /// Whether it is disrupted for another reason than that it is asked to leave.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.is_in_flight() || !self.is_up()
    }

    /// Whether it serves nobody. One whose sidecar cannot be reached may well serve.
    #[must_use]
    pub fn is_down(&self) -> bool {
        !self.ready && self.unreachable.is_none()
    }

    /// Whether it could be asked to leave, and is not.
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

/// A node's name that belongs to something else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// The name.
    pub name: NodeName,
    /// Its ordinal.
    pub ordinal: i32,
    /// Whose it is, in a sentence.
    pub message: String,
}
