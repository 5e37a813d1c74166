//! What is known of a fleet and its nodes, in the words that the wave is counted in: in flight, disrupted, drifted.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::IntOrString;
use chrono::{DateTime, Utc};

use super::decide::Cause;
use super::hooks::AtHook;
use super::sets::{SetFacts, SetRollout, Way};
use crate::api::{OnStall, Problem, Promotion, Rejected};

/// One existing node of a fleet, as it was observed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChildFacts {
    /// Its name.
    pub name: String,
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
    pub behind: bool,
    /// The rollout hash of the revision that its spec holds; empty where the spec cannot be read.
    pub held: String,
    /// `spec.grantedHash`.
    pub granted: String,
    /// `spec.grantID`.
    pub grant_id: String,
    /// `status.spentGrantID`.
    pub spent_id: String,
    /// The latest restart that it obeys (RFC 3339); empty for none.
    pub restart: String,
    /// `status.podTemplateHash`: what its pod was observed to run.
    pub running: String,
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
    /// The task under which the application has halted; empty where it has not.
    pub halted_for: String,
    /// The height that the node's spec asks it to halt at; 0 for none.
    pub halt_height: i64,
    /// The task under which it asks.
    pub halt_task: String,
    /// Why it cannot halt, in the sidecar's words.
    pub message: String,
}

impl ChildFacts {
    /// Whether its grant was converged to.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.grant_id == self.spent_id
    }

    /// Whether it was asked to halt at a height.
    #[must_use]
    pub fn is_asked_to_halt(&self) -> bool {
        self.sidecar.as_ref().is_some_and(|s| s.halt_height > 0 || !s.halted_for.is_empty())
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
            && !self.behind
            && !self.rolling
            && self.is_spent()
            && self.running != self.granted
    }

    /// Moving, or about to.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        !self.is_drifted() && (self.behind || self.granted != self.running || self.rolling)
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

    /// Whether nothing is left to wait for before it is deleted. One that is down and has answered otherwise than by a plan
    /// to leave cannot make one; where it has one, that goes to its end, and nothing of it waits for the wave.
    #[must_use]
    pub fn can_be_deleted(&self) -> bool {
        let cannot = self.asked_to_leave && !self.behind && self.is_down() && !self.leaves_by_plan;
        self.awaits_removal || self.unreadable || cannot
    }
}

/// A node's name that belongs to something else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// The name.
    pub name: String,
    /// Its ordinal.
    pub ordinal: i32,
    /// Whose it is, in a sentence.
    pub message: String,
}

/// What a revision renders to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rendering {
    /// The pod template hash.
    pub hash: String,
    /// The main container's image.
    pub image: String,
}

/// Which revision a plan moves nodes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Every node to this rollout hash.
    Target(String),
    /// Every node to the revision that it holds: what drifted is put right.
    Own,
}

/// Everything that a decision about a fleet rests on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetFacts {
    /// The set that its nodes belong to: the one that serves.
    pub set: String,
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
    pub requested: String,
    /// The rollout hash of what last completed; empty before the first.
    pub last_completed: String,
    /// The target that is not tried again, if it is still the one wanted.
    pub rejected: Option<Rejected>,
    /// Who asked last for what with the command line: the annotation, as it is written.
    pub asked: String,
    /// The latest restart obeyed (RFC 3339); empty for none.
    pub restarted_at: String,
    /// A later restart that is asked for.
    pub restart_request: Option<String>,
    /// Whether nothing was ever recorded of it: its status was lost, or its nodes were there first.
    pub unrecorded: bool,
    /// Whether a fleet that was scaled to 0 is filling again.
    pub scaled_to_zero: bool,
    /// The value of the abort annotation.
    pub abort: String,
    /// The value of the retry annotation.
    pub retry: String,
    /// Why what is wanted cannot be started, in a sentence.
    pub invalid: Option<String>,
    /// What could not be applied although the rest goes on, in a sentence.
    pub not_applied: Option<String>,
    /// What a set that should be gone, or made, waits for, in a sentence.
    pub waits_for: Option<String>,
    /// Why it is not known which set serves, in a sentence: then nothing is done.
    pub undecided: Option<String>,
    /// The set that the fleet's own Service selects, where it has one.
    pub selected: Option<String>,
    /// How new nodes take over, where a change makes any.
    pub strategy: Way,
    /// When they do.
    pub promotion: Promotion,
    /// Whether a person asks for the promotion of what is wanted.
    pub force_promote: bool,
    /// `spec.unsafeCustomBuildID` of what is wanted; empty where it is generated.
    pub build_id: String,
    /// The one under which the active set was made.
    pub active_build_id: String,
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
    pub sets: BTreeMap<String, SetFacts>,
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
    pub renderings: BTreeMap<(String, String), Rendering>,
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

    /// Whether a target that was rejected still is: nothing else is wanted that could be tried.
    #[must_use]
    pub fn stays_rejected(&self, rejected: &Rejected) -> bool {
        rejected.hash == self.requested || self.invalid.is_some()
    }

    /// Whether a revision with this rollout hash is kept.
    #[must_use]
    pub fn is_known(&self, revision: &str) -> bool {
        !revision.is_empty()
            && self
                .renderings
                .range((revision.to_owned(), String::new())..)
                .next()
                .is_some_and(|(k, _)| k.0 == revision)
    }

    /// Ordinals below this keep the current revision; none do before there is one.
    #[must_use]
    pub fn held_below(&self) -> i32 {
        // The same content is another target under another build ID: then there is nothing to hold them at.
        let other_id = self.build_id != self.active_build_id;
        if self.last_completed.is_empty() || other_id { 0 } else { self.partition }
    }

    /// The revision for nodes that no rollout is about: the wanted one, or, while that is rejected or
    /// cannot be started, the current one.
    #[must_use]
    pub fn steady_revision(&self) -> &str {
        let unusable =
            self.rejected.is_some() || !self.is_known(&self.requested) || self.is_for_another_set();
        if unusable && !self.last_completed.is_empty() { &self.last_completed } else { &self.requested }
    }

    /// The target of a template rollout: what is wanted, or, once that was rolled back, what was before.
    #[must_use]
    pub fn goal(&self) -> &str {
        let rolled_back = self.rejected.as_ref().is_some_and(|r| r.outcome == "RolledBack");
        if rolled_back && !self.last_completed.is_empty() { &self.last_completed } else { &self.requested }
    }

    /// The revision that a node is to hold.
    #[must_use]
    pub fn revision_for<'a>(&'a self, child: &'a ChildFacts, scope: &'a Scope) -> &'a str {
        match scope {
            Scope::Target(_) if child.ordinal < self.held_below() => &self.last_completed,
            Scope::Target(target) => target,
            Scope::Own if self.is_known(&child.held) => &child.held,
            Scope::Own => self.steady_revision(),
        }
    }

    /// What a revision renders to under a restart.
    #[must_use]
    pub fn rendering(&self, revision: &str, restart: &str) -> Option<&Rendering> {
        self.renderings.get(&(revision.to_owned(), restart.to_owned()))
    }

    /// What a node is to run.
    #[must_use]
    pub fn target_for(&self, child: &ChildFacts, scope: &Scope) -> Option<&Rendering> {
        self.rendering(self.revision_for(child, scope), &child.restart)
    }

    /// Whether a node's spec and grant are what they are to be.
    #[must_use]
    pub fn is_granted(&self, child: &ChildFacts, scope: &Scope) -> bool {
        child.held == self.revision_for(child, scope)
            && self.target_for(child, scope).is_some_and(|t| t.hash == child.granted)
            && !child.is_drifted()
    }

    /// Whether a node was observed at what it is to run.
    #[must_use]
    pub fn is_updated(&self, child: &ChildFacts, scope: &Scope) -> bool {
        self.is_granted(child, scope)
            && !child.behind
            && self
                .target_for(child, scope)
                .is_some_and(|t| t.hash == child.running && t.image == child.running_image)
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
    pub fn revision_differs_below_partition(&self, scope: &Scope) -> bool {
        matches!(scope, Scope::Target(target) if *target != self.last_completed) && self.held_below() > 0
    }

    /// Whether every wanted node exists, is at what it is to run, and serves, and nothing else is left.
    #[must_use]
    pub fn is_converged(&self, scope: &Scope) -> bool {
        self.replicas > 0
            && self.missing().is_empty()
            && self.conflicts.is_empty()
            && self.children.iter().all(|c| !c.surplus && self.is_updated(c, scope) && !c.is_disrupted())
    }
}
