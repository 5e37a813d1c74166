//! What a node is doing, as the wave counts it.

use super::child::ChildFacts;
use crate::api::{GrantId, PodTemplateHash, Reason};

/// What a node is doing. It is in exactly one of these states.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeState {
    /// It is being deleted. `moving`: its main container still runs, or its executor was moving it.
    Terminating {
        /// True if others wait for it.
        moving: bool,
    },
    /// Its controller holds it, and it has never run anything: the name of one of its objects is taken, or its spec cannot
    /// be carried out. It never served, and no grant would help it, so it does not count
    /// against the wave.
    NeverStarted,
    /// It moves to another template, or is about to.
    InFlight(Flight, Health),
    /// It is at rest, and its main container does not run what it was granted: it needs a new grant.
    Drifted(Health),
    /// It is at rest.
    AtRest(Health),
}

/// How far a node in flight is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flight {
    /// Its executor moves it to what it was granted.
    Moving,
    /// It has spent its grant, and counts as in flight because its status is behind or a plan repairs it.
    Spent,
    /// Its main container runs what it was granted, and it is not Ready yet.
    Arrived,
    /// It has spent its grant and is not Ready: nothing moves it before it is granted something else.
    Stuck,
    /// An abort granted it another template than its pod runs, and its executor keeps that pod. The pod was replaced
    /// after the abort was decided.
    Kept,
}

/// Whether a node serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Health {
    /// It is available.
    Serving,
    /// It is Ready, but not yet for `minReadySeconds`.
    Starting,
    /// It is not Ready.
    Down,
    /// Its sidecar cannot be reached, so that it may or may not serve.
    Unreachable {
        /// True if its pod is Ready.
        ready: bool,
    },
}

impl NodeState {
    /// The state of a node, as it was observed.
    #[must_use]
    pub fn of(child: &ChildFacts) -> Self {
        let runs_granted = child.pod.hash == child.grant.hash;
        let is_unsettled =
            child.controller.status_outdated || child.controller.rolling || child.pod.drain.is_asked();
        let is_still = !child.pod.ready && !child.controller.status_outdated && child.is_spent();
        if child.terminating {
            let in_flight = is_unsettled || !runs_granted;
            return Self::Terminating {
                moving: child.pod.ready || child.pod.runs || (in_flight && !is_still),
            };
        }
        let is_held = child.health.problem.as_ref().is_some_and(|p| p.reason == Reason::InvalidSpec.as_ref());
        let ran = child.pod.ever_ready || child.main_container_runs() || child.pod.hash.is_some();
        if is_held && !ran && !is_unsettled {
            return Self::NeverStarted;
        }
        let health = Health::of(child);
        if runs_granted && !is_unsettled {
            return Self::AtRest(health);
        }
        let runs = child.main_container_runs();
        if runs && !is_unsettled && child.is_spent() {
            return Self::Drifted(health);
        }
        let is_by_abort = child.grant.id.as_ref().is_some_and(GrantId::is_by_abort);
        let flight = match (child.is_spent(), runs_granted) {
            (true, _) if is_still => Flight::Stuck,
            (true, _) => Flight::Spent,
            (false, true) if runs && !child.pod.ready && !child.controller.status_outdated => Flight::Arrived,
            (false, false) if is_by_abort && !is_unsettled => Flight::Kept,
            (false, _) => Flight::Moving,
        };
        Self::InFlight(flight, health)
    }

    /// True if it moves to another template, or is about to.
    #[must_use]
    pub fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight(..))
    }

    /// The node's health; `None` if it is being deleted or was never started.
    #[must_use]
    pub fn health(self) -> Option<Health> {
        match self {
            Self::InFlight(_, health) | Self::Drifted(health) | Self::AtRest(health) => Some(health),
            Self::Terminating { .. } | Self::NeverStarted => None,
        }
    }

    /// True if it needs a new grant, since its main container does not run what it was granted.
    #[must_use]
    pub fn is_drifted(self) -> bool {
        matches!(self, Self::Drifted(_))
    }

    /// True if it serves and does not move.
    #[must_use]
    pub fn is_undisturbed(self) -> bool {
        matches!(self, Self::AtRest(Health::Serving) | Self::Drifted(Health::Serving))
    }

    /// True if it is at rest, its sidecar cannot be reached, and its pod is not Ready.
    #[must_use]
    pub fn is_unreachable_and_idle(self) -> bool {
        let mute = Health::Unreachable { ready: false };
        self == Self::AtRest(mute) || self == Self::Drifted(mute)
    }
}

impl Health {
    fn of(child: &ChildFacts) -> Self {
        let pod = &child.pod;
        match child.health.unreachable {
            Some(_) => Self::Unreachable { ready: pod.ready },
            None if pod.available => Self::Serving,
            None if pod.ready => Self::Starting,
            None => Self::Down,
        }
    }
}

impl ChildFacts {
    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> NodeState {
        NodeState::of(self)
    }

    /// True if others wait for it to reach its grant, or to go. `target`: what it should run, if that is known. A node
    /// that runs what it was granted is not moving, even if it should run something else now.
    #[must_use]
    pub fn is_moving(&self, target: Option<&PodTemplateHash>) -> bool {
        // It is not Ready and may be deleted at any time.
        let is_let_go = self.leave.asked && !self.pod.ready && self.pod.runs;
        match self.state() {
            NodeState::Terminating { moving } => moving,
            NodeState::InFlight(Flight::Arrived, _) => is_let_go || self.is_desired_as_granted(target),
            NodeState::InFlight(Flight::Moving | Flight::Spent | Flight::Kept, _) => true,
            NodeState::NeverStarted
            | NodeState::InFlight(Flight::Stuck, _)
            | NodeState::Drifted(_)
            | NodeState::AtRest(_) => is_let_go,
        }
    }

    /// True if it should run what it was granted, as far as is known.
    #[must_use]
    pub fn is_desired_as_granted(&self, target: Option<&PodTemplateHash>) -> bool {
        !self.surplus && target.is_none_or(|target| self.grant.hash == *target)
    }

    /// True if it is available and not leaving. A node whose sidecar cannot be reached does not count as serving.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.state().health() == Some(Health::Serving) && !self.leave.asked
    }

    /// True if it is in flight, terminating, asked to leave, not available, or its sidecar cannot be reached. A node
    /// that has drifted still serves and is not disrupted for that reason.
    #[must_use]
    pub fn is_disrupted(&self) -> bool {
        self.leave.asked || !self.state().is_undisturbed()
    }

    /// True if it takes room in the wave.
    #[must_use]
    pub fn counts_as_disrupted(&self) -> bool {
        self.is_disrupted() && self.state() != NodeState::NeverStarted
    }
}
