//! Decides which nodes may be granted a new template, by the rules in [`Clause`]. A wave is the nodes that may be
//! disrupted at once: `maxUnavailable`. A model of the rules showed that each of them is needed: without it, a short
//! trace breaks the wave, completes a rollout falsely, or blocks it forever (`planner/fleet/tests/traces.rs`).

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};

use super::child::ChildFacts;
use super::create::has_failed;
use super::decision::RolloutTarget;
use super::facts::{FleetFacts, Group, Rendering};
use super::state::{Flight, Health, NodeState};
use super::topology::{ByDomain, Order};
use crate::api::{Groups, NodeName, PodTemplateHash, RestartTime, RolloutHash};
use crate::engine::sentence::some_of;

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
pub(super) struct Used(ByDomain<Counts>);

/// How many nodes of a domain use the wave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    disrupted: i32,
    moving: i32,
    /// Those whose main containers do not run, and that are not moving.
    stopped: i32,
    /// Those of the disrupted ones that are not in flight, not Ready, and whose sidecars cannot be reached.
    mute: i32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.disrupted += other.disrupted;
        self.moving += other.moving;
        self.stopped += other.stopped;
        self.mute += other.mute;
    }
}

impl Used {
    pub(super) fn of(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Self {
        let of = |child: &ChildFacts| {
            let target = facts.target_for(child, rollout_target).map(|target| &target.hash);
            Counts {
                disrupted: i32::from(child.counts_as_disrupted()),
                moving: i32::from(child.is_moving(target)),
                stopped: i32::from(is_stopped(facts, child, rollout_target)),
                mute: i32::from(child.state().is_unreachable_and_idle()),
            }
        };
        let missing = || Counts { disrupted: 1, ..Counts::default() };
        let ending = || Counts { disrupted: 1, moving: 1, ..Counts::default() };
        Self(ByDomain::count(facts, of, missing, ending))
    }

    /// The clause under which the pod of a node that exists and is not moving may be replaced, if there is room.
    /// `target`: what its pod will run.
    pub(super) fn clause_for(
        &self,
        facts: &FleetFacts,
        child: &ChildFacts,
        target: Option<&PodTemplateHash>,
        is_down: bool,
    ) -> Option<Clause> {
        if is_down {
            // If its main container runs, nodes whose main containers do not run take room from it.
            let runs = child.main_container_runs();
            let others = |counts: &Counts| counts.moving + if runs { counts.stopped } else { 0 };
            let own = i32::from(child.is_moving(target));
            return self.0.has_room(facts, child, others, own).then_some(Clause::Down);
        }
        // Several of them that are not Ready would keep each other from what repairs them, so they take no room from each
        // other.
        let is_mute = child.state().is_unreachable_and_idle();
        let others = |counts: &Counts| counts.disrupted - if is_mute { counts.mute } else { 0 };
        let own = i32::from(child.counts_as_disrupted() && !is_mute);
        self.0.has_room(facts, child, others, own).then_some(Clause::Serving)
    }

    /// True if the pod of a node may be replaced although that repairs nothing.
    pub(super) fn has_room(&self, facts: &FleetFacts, child: &ChildFacts) -> bool {
        self.0.has_room(facts, child, |counts| counts.disrupted, i32::from(child.counts_as_disrupted()))
    }

    /// How many other nodes are disrupted.
    pub(super) fn disrupted_besides(&self, child: &ChildFacts) -> i32 {
        self.0.total(|counts| counts.disrupted) - i32::from(child.counts_as_disrupted())
    }

    /// Counts a node whose pod will be replaced.
    pub(super) fn count(
        &mut self,
        facts: &FleetFacts,
        child: &ChildFacts,
        rollout_target: &RolloutTarget,
        target: Option<&PodTemplateHash>,
    ) {
        let more = Counts {
            disrupted: i32::from(!child.counts_as_disrupted()),
            moving: i32::from(!child.is_moving(target)),
            stopped: -i32::from(is_stopped(facts, child, rollout_target)),
            mute: -i32::from(child.state().is_unreachable_and_idle()),
        };
        self.0.add(&child.domain, more);
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
    clause(facts, child, revision, target, &Used::of(facts, rollout_target))
}

fn clause(
    facts: &FleetFacts,
    child: &ChildFacts,
    revision: &RolloutHash,
    target: &PodTemplateHash,
    used: &Used,
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
    let is_down = health == Health::Down;
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
/// machines are being drained, and at the end those that are updated last. Within these, a domain that is begun comes first,
/// then the highest ordinal. Each grant is counted before the next is considered. A grant takes room and never makes any, so
/// a node that was refused once stays refused.
#[must_use]
pub fn next_grants(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<Grant> {
    let mut candidates = candidates(facts, rollout_target);
    if candidates.is_empty() {
        return Vec::new();
    }
    let is_moved = |child: &ChildFacts| {
        facts.is_granted(child, rollout_target) && !facts.is_held_back(child, rollout_target)
    };
    let begun = facts.begun_domains(is_moved);
    let mut first = BTreeMap::new();
    for (index, of) in candidates.iter().enumerate() {
        first.entry((of.pass(), &of.child.domain)).or_insert(index);
    }
    // The sort is stable.
    candidates.sort_by_cached_key(|of| {
        let (pass, domain) = (of.pass(), &of.child.domain);
        (pass, !begun.contains(domain), first.get(&(pass, domain)).copied())
    });
    let mut used = Used::of(facts, rollout_target);
    let mut last_pods = LastPods::of(facts, rollout_target);
    // Before anything is granted: what is granted here is not available at the target yet.
    let is_last_due = !waits_before_last(facts, rollout_target, &last_pods);
    let mut may_try = !facts.has_trial(rollout_target);
    let mut grants = Vec::new();
    for of in candidates {
        let Candidate { child, revision, target } = of;
        let Some(clause) = clause(facts, child, revision, &target.hash, &used) else { continue };
        // One that is down moves all the same: it would take room from the others for good.
        let serves = clause == Clause::Serving || child.pod.ready;
        let is_its_turn = match child.order {
            Order::Any => true,
            Order::Last => is_last_due,
            Order::Unknown => false,
        };
        let waits = clause == Clause::Serving && facts.awaits_lower(child);
        let is_trial = clause != Clause::RunsTarget && facts.is_trial(child);
        let waits = waits || facts.waits_at_gate(child, revision, clause) || (is_trial && !may_try);
        if waits || serves && last_pods.hold(child) || child.pod.ready && !is_its_turn {
            continue;
        }
        may_try &= !is_trial;
        last_pods.count(child);
        used.count(facts, child, rollout_target, Some(&target.hash));
        grants.push(Grant {
            name: child.name.clone(),
            revision: revision.clone(),
            hash: target.hash.clone(),
            restart: facts.restart_of(child).cloned(),
            clause,
        });
    }
    grants
}

/// A node that is not granted what it should run, and may be.
struct Candidate<'a> {
    child: &'a ChildFacts,
    revision: &'a RolloutHash,
    target: &'a Rendering,
}

impl Candidate<'_> {
    /// Candidates of a lower pass come first.
    fn pass(&self) -> u8 {
        match self.child {
            child if child.pod.hash == self.target.hash => 0,
            child if child.is_disrupted() && !child.is_spent() => 1,
            child if child.is_disrupted() => 2,
            child if child.order != Order::Any => 5,
            child if child.pod.drain.is_due() => 3,
            _ => 4,
        }
    }
}

/// The candidates, from the highest ordinal.
fn candidates<'a>(facts: &'a FleetFacts, rollout_target: &'a RolloutTarget) -> Vec<Candidate<'a>> {
    let from = facts.moves_from(rollout_target);
    // A pod that cannot run takes room from the StatefulSet whose turn it is, and only another revision helps it.
    let cannot_run = |c: &ChildFacts| c.pod.failed && !c.main_container_runs();
    let may_move = |c: &&ChildFacts| c.ordinal >= from || c.state().is_in_flight() || cannot_run(c);
    facts
        .children
        .iter()
        .rev()
        .filter(|c| !c.surplus && !c.terminating && !c.leave.asked && !facts.is_granted(c, rollout_target))
        .filter(may_move)
        .filter(|c| c.grant.again_at.is_none())
        .filter_map(|child| {
            let (revision, target) =
                (facts.revision_for(child, rollout_target), facts.target_for(child, rollout_target)?);
            Some(Candidate { child, revision, target })
        })
        .collect()
}

/// What the nodes wait for that are updated last, if only these are left; or that a sidecar has not reported its role.
#[must_use]
pub fn waits_for_turn(facts: &FleetFacts, rollout_target: &RolloutTarget) -> Option<String> {
    let left: Vec<&ChildFacts> =
        facts.wanted().filter(|child| !facts.is_granted(child, rollout_target) && child.pod.ready).collect();
    let unknown: Vec<&str> =
        left.iter().filter(|child| child.order == Order::Unknown).map(|child| child.name.as_str()).collect();
    if !unknown.is_empty() {
        return Some(format!("waiting for the sidecar of {} to report its role", some_of(&unknown)));
    }
    if left.is_empty() || left.iter().any(|child| child.order == Order::Any) {
        return None;
    }
    let last_pods = LastPods::of(facts, rollout_target);
    let others = nodes_before_last(facts, rollout_target, &last_pods);
    let missing = missing_before_last(facts, rollout_target).map(|ordinal| format!("ordinal {ordinal}"));
    let others: Vec<String> = others.map(|child| child.name.to_string()).chain(missing).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    (!others.is_empty()).then(|| {
        format!("waiting for {} to be available before the nodes that order.last selects", some_of(&others))
    })
}

/// True if other nodes have to be at their target and available before those that are updated last.
fn waits_before_last(facts: &FleetFacts, rollout_target: &RolloutTarget, last_pods: &LastPods) -> bool {
    nodes_before_last(facts, rollout_target, last_pods).next().is_some()
        || missing_before_last(facts, rollout_target).next().is_some()
}

/// The lowest ordinal of the nodes that are updated before those that are updated last. The rollout waits for none that the
/// partition holds.
fn first_before_last(facts: &FleetFacts, rollout_target: &RolloutTarget) -> i32 {
    facts.moves_from(rollout_target).max(facts.held_below())
}

fn missing_before_last(facts: &FleetFacts, rollout_target: &RolloutTarget) -> impl Iterator<Item = i32> {
    let from = first_before_last(facts, rollout_target);
    facts.missing().into_iter().filter(move |ordinal| *ordinal >= from)
}

/// The nodes that have to be at their target and available before those that are updated last, and are not. Not those that
/// wait for the others to move ([`LastPods`]), or that a user suspended.
fn nodes_before_last<'a>(
    facts: &'a FleetFacts,
    rollout_target: &'a RolloutTarget,
    last_pods: &'a LastPods,
) -> impl Iterator<Item = &'a ChildFacts> {
    let from = first_before_last(facts, rollout_target);
    let others = facts.wanted().filter(move |c| c.order != Order::Last && c.ordinal >= from);
    others.filter(move |c| {
        let is_left = !facts.is_granted(c, rollout_target) && !last_pods.hold(c);
        is_left || (c.counts_as_disrupted() && !c.controller.suspended)
    })
}

/// Why a pod that serves may not be replaced now, in a sentence: others have gone down since it was granted.
#[must_use]
pub fn keeps_for_others(facts: &FleetFacts, child: &ChildFacts) -> Option<String> {
    let down = |other: &ChildFacts| i32::from(other.name != child.name && !other.pod.available);
    let by_domain = ByDomain::count(facts, down, || 1, || 1);
    if by_domain.has_room(facts, child, |down| *down, 0) {
        return None;
    }
    let others = facts.children.iter().filter(|other| other.name != child.name && !other.pod.available);
    let names = others.map(|other| other.name.as_str());
    let names: Vec<&str> = names.chain(facts.shutting_down.iter().map(String::as_str)).collect();
    Some(format!("waiting for other pods to become available: {}", some_of(&names)))
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
