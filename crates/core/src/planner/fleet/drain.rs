//! Pods that leave machines that are being drained, one by one, as the wave allows. Each is deleted by its node's plan
//! MoveNode and created again elsewhere. The plan belongs to no rollout.

use super::child::ChildFacts;
use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::sets::SetRollout;
use super::state::{Health, NodeState};
use super::wave::Used;
use crate::api::{NodeName, PodMove};
use crate::engine::sentence::some_of;

/// Whether a pod has to leave its machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Drain {
    /// It may stay.
    #[default]
    None,
    /// Its machine is being drained.
    Due(PodMove),
    /// Its machine is being drained, and its node was asked to move it.
    Asked(PodMove),
    /// Its node was asked to move it, and its machine is no longer being drained.
    Withdrawn,
    /// It was moved, and was scheduled to the same machine again. It is not moved a second time.
    Returned(PodMove),
    /// There is an earlier request that is of no more use.
    Over,
}

impl Drain {
    /// Computes it. `asked`: what its node was last asked to move. `pod`: the pod, if it exists and is not being deleted.
    /// `is_draining`: whether a machine is being drained.
    #[must_use]
    pub fn of(asked: Option<&PodMove>, pod: Option<PodMove>, is_draining: impl Fn(&str) -> bool) -> Self {
        let Some(asked) = asked else {
            return pod.filter(|pod| is_draining(&pod.node_name)).map_or(Self::None, Self::Due);
        };
        let still_drains = is_draining(&asked.node_name);
        match pod {
            Some(pod) if pod.pod_uid == asked.pod_uid && still_drains => Self::Asked(pod),
            Some(pod) if pod.pod_uid == asked.pod_uid => Self::Withdrawn,
            Some(pod) if pod.node_name == asked.node_name && still_drains => Self::Returned(pod),
            Some(pod) if is_draining(&pod.node_name) => Self::Due(pod),
            _ if still_drains => Self::None,
            _ => Self::Over,
        }
    }

    /// True if its node was asked to move it, and has not done so.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Withdrawn)
    }

    /// True if it has to leave its machine, and its node was not asked to move it.
    #[must_use]
    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// The pod that still has to leave its machine.
    fn left(&self) -> Option<&PodMove> {
        match self {
            Self::Due(pod) | Self::Asked(pod) => Some(pod),
            Self::None | Self::Withdrawn | Self::Returned(_) | Self::Over => None,
        }
    }
}

/// A request to a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MoveRequest {
    /// The node.
    pub name: NodeName,
    /// The pod that it has to move; `None` if an earlier request ends.
    pub pod: Option<PodMove>,
}

/// The requests that end: their machines are no longer being drained.
#[must_use]
pub fn ended_moves(facts: &FleetFacts) -> Vec<MoveRequest> {
    let is_over = |child: &&ChildFacts| matches!(child.pod.drain, Drain::Withdrawn | Drain::Over);
    let ended = facts.children.iter().filter(is_over);
    ended.map(|child| MoveRequest { name: child.name.clone(), pod: None }).collect()
}

/// The pods that may be moved now: first those of nodes that are down, then those of nodes that serve, each from the
/// highest ordinal. A node that is down disrupts no other, so it only needs room among those that move.
#[must_use]
pub fn next_moves(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<MoveRequest> {
    let is_halting = facts.rollout.now.set().is_some_and(SetRollout::is_halting);
    if facts.terminating || facts.findings.undecided.is_some() || is_halting {
        return Vec::new();
    }
    let mut used = Used::of(facts, rollout_target);
    let mut moves = Vec::new();
    for serves in [false, true] {
        for child in facts.children.iter().rev().filter(|child| child.is_disrupted() != serves) {
            let Drain::Due(pod) = &child.pod.drain else { continue };
            let NodeState::AtRest(health) = child.state() else { continue };
            let (target, is_down) =
                (child.grant.hash.as_ref(), matches!(health, Health::Down | Health::Starting));
            let stays = child.surplus || child.leave.asked || child.grant.again_at.is_some();
            let waits = stays || (serves && facts.awaits_lower(child));
            if waits || used.clause_for(facts, child, target, is_down).is_none() {
                continue;
            }
            used.count(facts, child, rollout_target, target);
            moves.push(MoveRequest { name: child.name.clone(), pod: Some(pod.clone()) });
        }
    }
    moves
}

/// True if a pod still has to leave its machine.
#[must_use]
pub fn is_moving_any(facts: &FleetFacts) -> bool {
    facts.wanted().any(|child| child.pod.drain.left().is_some())
}

/// What drained machines wait for, in a sentence; `None` if they wait for nothing.
#[must_use]
pub fn waits_for(facts: &FleetFacts) -> Option<String> {
    let left: Vec<(&ChildFacts, &PodMove)> =
        facts.wanted().filter_map(|child| Some((child, child.pod.drain.left()?))).collect();
    if let Some((_, first)) = left.first() {
        let names: Vec<&str> = left.iter().map(|(child, _)| child.name.as_str()).collect();
        let machine = if left.iter().all(|(_, pod)| pod.node_name == first.node_name) {
            format!("machine {}, which is being drained", first.node_name)
        } else {
            "machines that are being drained".to_owned()
        };
        return Some(format!(
            "moving {} off {machine}, at most {} unavailable at once",
            some_of(&names),
            facts.spec.max_unavailable
        ));
    }
    facts.wanted().find_map(|child| {
        let Drain::Returned(pod) = &child.pod.drain else { return None };
        Some(format!(
            "{} was scheduled to machine {} again, which is being drained: remove the toleration from its pod template, \
             or delete the pod",
            child.name, pod.node_name
        ))
    })
}
