//! Decides which nodes may be granted a new template, by the rules in [`Clause`]. A wave is the nodes that may be
//! disrupted at once: `maxUnavailable`. A model of the rules showed that each of them is needed: without it, a short
//! trace breaks the wave, completes a rollout falsely, or blocks it forever (`planner/fleet/tests/traces.rs`).

use std::ops::Range;

use super::child::ChildFacts;
use super::create::has_failed;
use super::decision::RolloutTarget;
use super::facts::{FleetFacts, Group, Rendering};
use super::state::{Flight, Health, NodeState};
use crate::api::{Groups, NodeName, PodTemplateHash, RestartTime, RolloutHash};

/// The clause under which a grant is given. The letters are no order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Clause {
    /// (a) It already runs the target.
    RunsTarget,
    /// (b) It is in flight on an unspent grant, and its executor moves it to a target that is still desired.
    InFlightUnspent,
    /// (c) It is Failed, and its main container does not run.
    Failed,
    /// (d) It is down, and fewer than `maxUnavailable` others are moving. Nodes that are only down do not count: it is
    /// disrupted already, so that its move disrupts no other. If its main container runs, it may do its work: then nodes
    /// whose main containers do not run count as well. A node that is in flight and serves, as far as is known, does not
    /// move under this clause, but under (e). Nor does a new node that starts what last completed because the target has
    /// failed on another one.
    Down,
    /// (e) It serves, or has drifted, and the other disrupted nodes leave room.
    Serving,
    /// (f) Nothing has completed yet, it was never ready, and its main container does not run.
    NeverReady,
}

/// A grant that may be issued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The node.
    pub name: NodeName,
    /// The rollout hash of the revision for its spec.
    pub revision: RolloutHash,
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The restart that is part of it.
    pub restart: Option<RestartTime>,
    /// The clause that allows it.
    pub clause: Clause,
}

/// How much of the wave is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Used {
    pub(super) disrupted: i32,
    moving: i32,
    /// Those whose main containers do not run, and that are not moving.
    stopped: i32,
    /// Those of the disrupted ones that are not in flight, not Ready, and whose sidecars cannot be reached.
    mute: i32,
}

impl Used {
    pub(super) fn of(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Self {
        let moving = facts.moving(Some(rollout_target));
        let mute = facts.children.iter().filter(|c| c.state().is_unreachable_and_idle()).count() as i32;
        let stopped = facts.children.iter().filter(|c| is_stopped(facts, c, rollout_target)).count() as i32;
        Self { disrupted: facts.disrupted(), moving, stopped, mute }
    }

    /// The clause under which the pod of a node that exists and is not moving may be replaced, if there is room.
    /// `target`: what its pod will run.
    pub(super) fn clause_for(
        self,
        facts: &FleetFacts,
        child: &ChildFacts,
        target: Option<&PodTemplateHash>,
        is_down: bool,
    ) -> Option<Clause> {
        if is_down {
            // If its main container runs, nodes whose main containers do not run take room from it.
            let stopped = if child.main_container_runs() { self.stopped } else { 0 };
            let others = self.moving + stopped - i32::from(child.is_moving(target));
            return (others < facts.spec.max_unavailable).then_some(Clause::Down);
        }
        // Several of them that are not Ready would keep each other from what repairs them, so they take no room from each
        // other.
        let alike = if child.state().is_unreachable_and_idle() { self.mute - 1 } else { 0 };
        let others = self.disrupted - i32::from(child.counts_as_disrupted()) - alike;
        (others < facts.spec.max_unavailable).then_some(Clause::Serving)
    }

    /// Counts a node whose pod will be replaced.
    pub(super) fn count(
        &mut self,
        facts: &FleetFacts,
        child: &ChildFacts,
        rollout_target: &RolloutTarget,
        target: Option<&PodTemplateHash>,
    ) {
        self.stopped -= i32::from(is_stopped(facts, child, rollout_target));
        self.moving += i32::from(!child.is_moving(target));
        self.disrupted += i32::from(!child.counts_as_disrupted());
        self.mute -= i32::from(child.state().is_unreachable_and_idle());
    }
}

fn is_stopped(facts: &FleetFacts, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
    let target = facts.target_for(child, rollout_target).map(|target| &target.hash);
    let is_counted = child.is_moving(target) || child.state() == NodeState::NeverStarted;
    !child.main_container_runs() && !is_counted && !child.leave.asked
}

/// The clause under which the node at `index` may now be granted what it should run, if there is one.
#[must_use]
pub fn may_grant(facts: &FleetFacts, index: usize, rollout_target: &RolloutTarget) -> Option<Clause> {
    let child = facts.children.get(index)?;
    let target = &facts.target_for(child, rollout_target)?.hash;
    let revision = facts.revision_for(child, rollout_target);
    clause(facts, child, revision, target, Used::of(facts, rollout_target))
}

fn clause(
    facts: &FleetFacts,
    child: &ChildFacts,
    revision: &RolloutHash,
    target: &PodTemplateHash,
    used: Used,
) -> Option<Clause> {
    if child.pod.hash == *target {
        return Some(Clause::RunsTarget);
    }
    let runs = child.main_container_runs();
    if facts.record.last_completed.is_none() && !child.pod.ever_ready && !runs {
        return Some(Clause::NeverReady);
    }
    let health = match child.state() {
        NodeState::Terminating { .. } => return None,
        NodeState::InFlight(Flight::Moving, _) => return Some(Clause::InFlightUnspent),
        NodeState::NeverStarted if !child.is_spent() => return Some(Clause::InFlightUnspent),
        NodeState::InFlight(Flight::Arrived, _) if child.is_desired_as_granted(Some(target)) => {
            return Some(Clause::InFlightUnspent);
        }
        // A pod that an abort kept is moved by nothing but another grant.
        NodeState::InFlight(Flight::Kept, _) if !runs => return Some(Clause::InFlightUnspent),
        // It does not serve while it moves, whether its sidecar can be reached or not.
        NodeState::InFlight(_, Health::Unreachable { .. }) | NodeState::NeverStarted => Health::Down,
        NodeState::InFlight(_, health) | NodeState::Drifted(health) | NodeState::AtRest(health) => health,
    };
    let is_down = matches!(health, Health::Down | Health::Starting);
    if is_down && child.pod.failed && !runs {
        return Some(Clause::Failed);
    }
    // It needs room like a serving node, since it serves or may serve: also if it counts as in flight because its status
    // is behind or a plan repairs it, and its pod would go while another node is down.
    let starts =
        !child.pod.ever_ready && !child.pod.failed && child.is_spent() && has_failed(facts, revision);
    used.clause_for(facts, child, Some(target), (is_down || child.leave.asked) && !starts)
}

/// Holds back the last pod of each StatefulSet until the others have moved. Once its last pod has moved, a StatefulSet
/// completes, and the update can no longer be rolled back. Empty where nothing is held back: with fewer than two
/// StatefulSets that are updated, and with [`Groups::OneAtATime`], where each one completes before the next begins.
#[derive(Debug, Default)]
pub struct LastPods {
    sets: Vec<Unmoved>,
}

/// What is left of a StatefulSet that is updated.
#[derive(Debug)]
struct Unmoved {
    ordinals: Range<i32>,
    /// The pods that are not granted the target.
    left: usize,
    /// Those, and the ones that move or do not serve.
    open: usize,
}

impl LastPods {
    /// Those of a fleet.
    #[must_use]
    pub fn of(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Self {
        let RolloutTarget::Revision(target) = rollout_target else { return Self::default() };
        let updated: Vec<&Group> = facts.groups.iter().filter(|of| of.incomplete == *target).collect();
        if updated.len() < 2 || facts.spec.groups == Groups::OneAtATime {
            return Self::default();
        }
        let unmoved = |of: &Group| {
            let at = |ordinal: i32| facts.children.partition_point(|child| child.ordinal < ordinal);
            let pods = facts.children.get(at(of.ordinals.start)..at(of.ordinals.end)).unwrap_or_default();
            let is_left = |child: &ChildFacts| !facts.is_granted(child, rollout_target);
            let is_open = |child: &ChildFacts| is_left(child) || child.is_disrupted();
            let count = |is: &dyn Fn(&ChildFacts) -> bool| pods.iter().filter(|child| is(child)).count();
            Unmoved { ordinals: of.ordinals.clone(), left: count(&is_left), open: count(&is_open) }
        };
        Self { sets: updated.into_iter().map(unmoved).collect() }
    }

    /// True if this pod, which is not granted the target, waits for those of the other StatefulSets.
    #[must_use]
    pub fn hold(&self, child: &ChildFacts) -> bool {
        let own = self.sets.iter().find(|of| of.ordinals.contains(&child.ordinal));
        own.is_some_and(|of| of.left == 1) && self.sets.iter().any(|of| of.open > 1)
    }

    /// Counts a grant of the target.
    fn count(&mut self, granted: &ChildFacts) {
        for of in self.sets.iter_mut().filter(|of| of.ordinals.contains(&granted.ordinal)) {
            of.left = of.left.saturating_sub(1);
        }
    }
}

/// Every grant that may be issued now, in the order in which to issue them: nodes that already run the target, then
/// those that are down, first those that were granted something already, then those that serve, first those whose
/// machines are being drained; each from the highest ordinal. Each grant is counted before the next is considered. A
/// grant takes room and never makes any, so a node that was refused once stays refused.
#[must_use]
pub fn next_grants(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<Grant> {
    let from = facts.moves_from(rollout_target);
    // A pod that cannot run takes room from the StatefulSet whose turn it is, and only another revision helps it.
    let cannot_run = |c: &ChildFacts| c.pod.failed && !c.main_container_runs();
    let may_move = |c: &&ChildFacts| c.ordinal >= from || c.state().is_in_flight() || cannot_run(c);
    let candidates: Vec<(&ChildFacts, &RolloutHash, &Rendering)> = facts
        .children
        .iter()
        .rev()
        .filter(|c| !c.surplus && !c.terminating && !c.leave.asked && !facts.is_granted(c, rollout_target))
        .filter(may_move)
        .filter(|c| c.grant.again_at.is_none())
        .filter_map(|c| {
            Some((c, facts.revision_for(c, rollout_target), facts.target_for(c, rollout_target)?))
        })
        .collect();
    if candidates.is_empty() {
        return Vec::new();
    }
    let pass_of = |child: &ChildFacts, target: &PodTemplateHash| match child {
        _ if child.pod.hash == *target => 0,
        _ if child.is_disrupted() && !child.is_spent() => 1,
        _ if child.is_disrupted() => 2,
        _ if child.pod.drain.is_due() => 3,
        _ => 4,
    };
    let mut used = Used::of(facts, rollout_target);
    let mut last_pods = LastPods::of(facts, rollout_target);
    let mut grants = Vec::new();
    for pass in 0..5 {
        for (child, revision, target) in candidates.iter().filter(|(c, _, t)| pass_of(c, &t.hash) == pass) {
            let Some(clause) = clause(facts, child, revision, &target.hash, used) else { continue };
            // One that is down moves all the same: it would take room from the others for good.
            let serves = clause == Clause::Serving || child.pod.ready;
            if clause == Clause::Serving && facts.awaits_lower(child) || serves && last_pods.hold(child) {
                continue;
            }
            last_pods.count(child);
            used.count(facts, child, rollout_target, Some(&target.hash));
            grants.push(Grant {
                name: child.name.clone(),
                revision: (*revision).clone(),
                hash: target.hash.clone(),
                restart: facts.restart_of(child).cloned(),
                clause,
            });
        }
    }
    grants
}

/// The grants of what runs after an abort, for nodes that run another hash than the granted one. Skips spent grants. The
/// pod may have been replaced before such a grant is written: the node then keeps the new pod and is granted what that
/// runs, so no abort moves a node.
#[must_use]
pub fn pins(facts: &FleetFacts) -> Vec<Grant> {
    if !facts.is_rejected_by_abort() {
        return Vec::new();
    }
    let runs_other = |c: &&ChildFacts| {
        !c.is_spent() && c.pod.hash.is_some() && c.pod.hash != c.grant.hash && !c.terminating
    };
    let pin = |child: &ChildFacts| {
        // An abort also cancels a restart: the running pod may have been rendered without it.
        let ((revision, restart), rendering) =
            facts.renderings.iter().find(|(_, r)| child.pod.hash == r.hash)?;
        Some(Grant {
            name: child.name.clone(),
            revision: revision.clone(),
            hash: rendering.hash.clone(),
            restart: restart.clone(),
            clause: Clause::RunsTarget,
        })
    };
    facts.wanted().filter(runs_other).filter_map(pin).collect()
}
