//! Pods that are replaced with the same template, as the wave allows: one that has to leave a machine that is being drained,
//! and one that has to be restarted so that its volumes grow. Each is evicted by a plan of its node, MoveNode or RestartNode.

use std::collections::{BTreeMap, BTreeSet};

use super::child::ChildFacts;
use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::sets::SetRollout;
use super::state::{Health, NodeState};
use super::topology::Order;
use super::wave::Used;
use crate::api::{NodeName, PodMove};
use crate::engine::sentence::some_of;
use crate::observed::{ObservedMachine, ObservedPod};

/// Whether a pod has to be replaced: its machine is being drained, or its volumes grow only with a new pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Drain {
    /// It does not.
    #[default]
    None,
    /// It does, and its node was not asked to replace it.
    Due(PodMove),
    /// It does, and its node was asked to replace it.
    Asked(PodMove),
    /// Its node was asked to replace it, and it no longer has to be.
    Withdrawn,
    /// Its replacement was scheduled to the drained machine again. It is not replaced a second time.
    Returned(PodMove),
    /// There is an earlier request that is of no more use.
    Over,
}

/// The taint of a cordoned machine.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// The machines that are being drained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Draining {
    /// The machines have not been listed yet.
    Unknown,
    /// Each machine, with the taints that say so.
    Machines(BTreeMap<String, Vec<String>>),
}

impl Draining {
    /// Those of these machines that are cordoned, or have one of these taints, or are being deleted.
    pub fn of<'a>(machines: impl Iterator<Item = &'a ObservedMachine>, taints: &[String]) -> Self {
        let marks = |machine: &ObservedMachine| {
            let leaves = machine.unschedulable || machine.meta.terminating;
            let found = machine.taints.iter().filter(|taint| taints.contains(taint)).cloned();
            found.chain(leaves.then(|| CORDONED.to_owned())).collect::<Vec<_>>()
        };
        let marked = machines.map(|machine| (machine, marks(machine))).filter(|(_, marks)| !marks.is_empty());
        Self::Machines(marked.map(|(machine, marks)| (machine.meta.name.clone(), marks)).collect())
    }

    /// True if no machine is being drained, as far as is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Machines(machines) if machines.is_empty())
    }

    /// True if this machine is being drained.
    #[must_use]
    pub fn has(&self, machine: &str) -> bool {
        matches!(self, Self::Machines(machines) if machines.contains_key(machine))
    }

    /// True if a pod has to leave its machine. One that tolerates all that marks the machine would be scheduled there
    /// again.
    #[must_use]
    pub fn moves(&self, pod: &ObservedPod) -> bool {
        let Self::Machines(machines) = self else { return false };
        machines.get(&pod.machine).is_some_and(|marks| !marks.iter().all(|mark| pod.tolerates(mark)))
    }
}

impl Drain {
    /// Computes it. `asked`: what its node was last asked to move. `to_restart`: the UID of the pod, if its claims grow only
    /// when it is started again.
    #[must_use]
    pub fn of(
        asked: Option<&PodMove>,
        pod: Option<&ObservedPod>,
        draining: &Draining,
        to_restart: Option<&str>,
    ) -> Self {
        let pod = pod.filter(|pod| !pod.meta.terminating);
        let request = |pod: &ObservedPod, node_name: &str| PodMove {
            pod_uid: pod.meta.uid.clone(),
            node_name: node_name.to_owned(),
        };
        let grows = |pod: &ObservedPod| to_restart == Some(&pod.meta.uid);
        let due = |pod: &ObservedPod| {
            let machine =
                if draining.moves(pod) { Some(pod.machine.as_str()) } else { grows(pod).then_some("") };
            machine.map(|machine| Self::Due(request(pod, machine)))
        };
        let Some(asked) = asked else {
            return pod.and_then(due).unwrap_or_default();
        };
        let machine = asked.node_name.as_str();
        // Until the machines are known, a request stands.
        let stands = if machine.is_empty() {
            pod.is_some_and(grows)
        } else {
            *draining == Draining::Unknown || draining.has(machine)
        };
        match pod {
            Some(pod) if pod.meta.uid == asked.pod_uid && stands => Self::Asked(request(pod, machine)),
            Some(pod) if pod.meta.uid == asked.pod_uid => Self::Withdrawn,
            Some(pod) if pod.machine == machine && stands => Self::Returned(request(pod, machine)),
            Some(pod) if let Some(due) = due(pod) => due,
            _ if stands => Self::None,
            _ => Self::Over,
        }
    }

    /// True if its node was asked to replace it, and has not done so.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Withdrawn)
    }

    /// True if it has to be replaced, and its node was not asked for that.
    #[must_use]
    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// The pod that still has to be replaced.
    fn left(&self) -> Option<&PodMove> {
        match self {
            Self::Due(pod) | Self::Asked(pod) => Some(pod),
            Self::None | Self::Withdrawn | Self::Returned(_) | Self::Over => None,
        }
    }
}

/// A request to a node to replace its pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MoveRequest {
    /// The node.
    pub name: NodeName,
    /// The pod; `None` if an earlier request ends.
    pub pod: Option<PodMove>,
}

/// The requests that end: their pods no longer have to be replaced.
#[must_use]
pub fn ended_moves(facts: &FleetFacts) -> Vec<MoveRequest> {
    let is_over = |child: &&ChildFacts| matches!(child.pod.drain, Drain::Withdrawn | Drain::Over);
    let ended = facts.children.iter().filter(is_over);
    ended.map(|child| MoveRequest { name: child.name.clone(), pod: None }).collect()
}

/// The pods that may be replaced now: first those of nodes that are down, then those of nodes that serve, each from the
/// highest ordinal, and at the end those that are updated last. A node whose main container does not run only needs room among
/// those that are replaced.
#[must_use]
pub fn next_moves(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<MoveRequest> {
    if facts.terminating || facts.findings.undecided.is_some() || is_halting(facts) {
        return Vec::new();
    }
    let mut used = Used::of(facts, rollout_target);
    let mut moves = Vec::new();
    let others_are_left = || left(facts).any(|(child, _)| child.order != Order::Last);
    for (serves, order) in [(false, None), (true, Some(Order::Any)), (true, Some(Order::Last))] {
        let of_pass = |child: &&ChildFacts| {
            child.is_disrupted() != serves && order.is_none_or(|order| child.order == order)
        };
        // The last ones wait until all others have left.
        if order == Some(Order::Last) && others_are_left() {
            break;
        }
        for child in facts.children.iter().rev().filter(of_pass) {
            let Drain::Due(pod) = &child.pod.drain else { continue };
            let NodeState::AtRest(health) = child.state() else { continue };
            let (target, is_down) =
                (child.grant.hash.as_ref(), health == Health::Down && !child.main_container_runs());
            let stays = child.surplus || child.leave.asked || child.grant.again_at.is_some();
            // A restart can wait, unlike a drain.
            let waits_at_gate = !is_down && facts.rollout.gate.is_closed();
            let is_held = facts.spec.paused || !facts.grows_claims() || waits_at_gate;
            let stays = stays || (pod.node_name.is_empty() && is_held);
            // The plans of a StatefulSet's pods may need other update strategies.
            let stays = stays || facts.group_of(child).is_some_and(|group| facts.has_plan_in(group));
            let waits = stays || (serves && facts.awaits_lower(child));
            // A new pod repairs nothing here, so a node whose main container runs needs room like one that serves.
            let has_room = if is_down {
                used.clause_for(facts, child, target, true).is_some()
            } else {
                // A budget knows no domains, and each of these pods is evicted.
                used.has_room(facts, child) && used.disrupted_besides(child) < facts.spec.max_unavailable
            };
            if waits || !has_room {
                continue;
            }
            used.count(facts, child, rollout_target, target);
            moves.push(MoveRequest { name: child.name.clone(), pod: Some(pod.clone()) });
        }
    }
    moves
}

/// The nodes whose pods still have to be replaced. Restarts for volumes that grow are a part of that rollout.
fn left(facts: &FleetFacts) -> impl Iterator<Item = (&ChildFacts, &PodMove)> {
    let left = facts.wanted().filter_map(|child| Some((child, child.pod.drain.left()?)));
    left.filter(|(_, pod)| !pod.node_name.is_empty() || facts.grows_claims())
}

/// True if a pod still has to leave its machine, or to be restarted.
#[must_use]
pub fn is_moving_any(facts: &FleetFacts) -> bool {
    left(facts).next().is_some()
}

fn of_names(names: &[&str]) -> String {
    format!("{} {}", some_of(names), if names.len() == 1 { "has" } else { "have" })
}

fn of_machines(machines: &[&str]) -> String {
    match machines {
        [machine] => format!("machine {machine}, which is"),
        machines => format!("machines {}, which are", some_of(machines)),
    }
}

/// Why none of these nodes moves now, as the end of a sentence; `None` if one does.
fn why_none_moves(facts: &FleetFacts, left: &[(&ChildFacts, &PodMove)]) -> Option<String> {
    if is_halting(facts) {
        return Some("; they move after the halt".to_owned());
    }
    // During a rollout these are other nodes each moment.
    let moves = left.iter().any(|(child, _)| child.pod.drain.is_asked() || child.counts_as_disrupted());
    if moves || facts.rollout.now.cause().is_some() {
        return None;
    }
    let others = facts.wanted().filter(|child| child.counts_as_disrupted());
    let others: Vec<&str> = others.map(|child| child.name.as_str()).collect();
    (!others.is_empty()).then(|| format!("; waiting for {}", some_of(&others)))
}

fn is_halting(facts: &FleetFacts) -> bool {
    facts.rollout.now.set().is_some_and(SetRollout::is_halting)
}

/// Which pods still have to be replaced, in a sentence; `None` if none has to be.
#[must_use]
pub fn waits_for(facts: &FleetFacts) -> Option<String> {
    let (left, restarts): (Vec<(&ChildFacts, &PodMove)>, Vec<_>) =
        left(facts).partition(|(_, pod)| !pod.node_name.is_empty());
    let most = facts.limit_at_once();
    if !left.is_empty() {
        let names: Vec<&str> = left.iter().map(|(child, _)| child.name.as_str()).collect();
        let machines: BTreeSet<&str> = left.iter().map(|(_, pod)| pod.node_name.as_str()).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        let (names, machines) = (of_names(&names), of_machines(&machines));
        let why = why_none_moves(facts, &left).unwrap_or_default();
        return Some(format!("{names} to leave {machines} being drained, {most}{why}"));
    }
    if !restarts.is_empty() {
        let names: Vec<&str> = restarts.iter().map(|(child, _)| child.name.as_str()).collect();
        let names = of_names(&names);
        return Some(format!("{names} to be restarted to grow file systems, {most}"));
    }
    facts.wanted().find_map(|child| {
        let Drain::Returned(pod) = &child.pod.drain else { return None };
        Some(format!(
            "{} was scheduled to machine {} again, which is being drained: its pod template has to allow another machine",
            child.name, pod.node_name
        ))
    })
}
