//! The effect of hooks on a fleet: which hooks are waited for, what a failed hook blocks, and after how many nodes a
//! rollout stops.

use super::child::ChildFacts;
use super::decision::{Cause, RolloutTarget};
use super::facts::{FleetFacts, Rollout};
use super::wave::{Clause, Grant};
use crate::api::HookPoint;
use crate::api::at_hook::attempt_of;
use crate::api::hooks::nodes_of_step;
use crate::api::names::{ANNOTATION_APPROVE, argument_of};
use crate::api::status::{HOOKS_LIMIT, MAX_PROBLEM_BYTES};
use crate::api::{HookState, HookStatus, NodeDeploymentStatus, RolloutHash, Stage};
use crate::engine::sentence::{cut, some_of};
use crate::engine::{Plan, TaskRecord};

use crate::planner::hooks::is_left_at;

pub use crate::api::AtHook;

/// The key of a task's retry in the status, by which the task's node learns that it may run again: `TASK/ATTEMPT`.
#[must_use]
pub fn tried(task: &TaskRecord) -> String {
    format!("{}/{}", task.id, attempt_of(task))
}

/// The current hook of a plan of the fleet or of one of its nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CurrentHook<'a> {
    /// The hook.
    pub at: &'a AtHook,
    /// The node, if it is a node's plan.
    pub node: Option<&'a str>,
}

impl CurrentHook<'_> {
    /// The entry in the status for a hook that needs a user's attention, with at most `most` bytes of its message.
    #[must_use]
    pub fn status(&self, most: usize) -> HookStatus {
        HookStatus {
            hook: self.at.hook.clone(),
            node: self.node.unwrap_or_default().to_owned(),
            task_id: self.at.task_id.clone(),
            state: if self.at.failed { HookState::Failed } else { HookState::AwaitingApproval }.to_string(),
            message: if self.at.failed { cut(&self.at.message, most) } else { String::new() },
        }
    }

    /// Its name in messages, for example `hook drain of node db-1`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.node {
            Some(node) => format!("hook {} of node {node}", self.at.hook),
            None => format!("hook {}", self.at.hook),
        }
    }
}

/// The current hooks of all plans, the fleet's own first.
fn current_hooks(facts: &FleetFacts) -> impl Iterator<Item = CurrentHook<'_>> {
    let own = facts.rollout.at_hook.iter().map(|at| CurrentHook { at, node: None });
    // A node of the active set that is still at a target that is no longer desired leaves its hook with the next grant.
    let is_left_behind = |c: &'_ ChildFacts| {
        !c.surplus
            && !c.terminating
            && c.spec_hash != facts.requested
            && c.spec_hash != facts.record.last_completed
    };
    let others = facts.sets.values().flat_map(|set| &set.children);
    let own_nodes = facts.children.iter().filter(move |c| !is_left_behind(c));
    let nodes = own_nodes.chain(others).filter(|c| c.at_hook.is_some());
    own.chain(
        nodes.filter_map(|c| Some(CurrentHook { at: c.at_hook.as_ref()?, node: Some(c.name.as_str()) })),
    )
}

/// The hooks that have failed and block something, the fleet's own first.
pub fn failures(facts: &FleetFacts) -> impl Iterator<Item = CurrentHook<'_>> {
    current_hooks(facts).filter(|hook| hook.at.failed)
}

/// The hooks that wait for a user's approval.
pub fn asking(facts: &FleetFacts) -> impl Iterator<Item = CurrentHook<'_>> {
    current_hooks(facts).filter(|hook| hook.at.asks && !hook.at.failed)
}

/// The hooks that need a user's attention, for the status.
#[must_use]
pub fn to_look_at(facts: &FleetFacts) -> Vec<HookStatus> {
    let of = failures(facts).chain(asking(facts)).take(HOOKS_LIMIT);
    of.map(|hook| hook.status(MAX_PROBLEM_BYTES)).collect()
}

/// Which hook has failed, in a sentence, if any has: the hook, the node, and the last answer.
#[must_use]
pub fn failure(facts: &FleetFacts) -> Option<String> {
    let mut failures = failures(facts);
    let first = failures.next()?;
    let more = match failures.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{} failed{more}: {}", first.name(), first.at.message))
}

/// A failed hook's sentence, and what a user can do about it. `object`: see [`argument_of`]. `is_rollout`: true if a rollout is
/// active.
#[must_use]
pub fn with_ways_out(failure: &str, object: &str, is_rollout: bool) -> String {
    let abort =
        if is_rollout { format!("; to abort the rollout: windlass abort {object}") } else { String::new() };
    format!(
        "{failure}; to run the hook again: windlass retry {object}; to continue without it: windlass skip {object}{abort}"
    )
}

/// True if a hook has failed whose failure rolls the rollout back, and the fleet is not paused. The hook of a node that
/// was not granted the target failed on the way to another one, and that of a node that leaves its machine on the way to
/// none: they say nothing about this one.
#[must_use]
pub fn rolls_back(facts: &FleetFacts, rollout_target: &RolloutTarget) -> bool {
    let is_of_this = |hook: &CurrentHook<'_>| {
        let Some(node) = hook.node else { return true };
        let others = facts.sets.values().flat_map(|set| &set.children);
        let child = facts.children.iter().chain(others).find(|child| child.name == *node);
        child.is_some_and(|child| facts.is_granted(child, rollout_target) && !child.pod.drain.is_asked())
    };
    !facts.spec.paused
        && failures(facts).any(|hook| {
            facts.rollout.rolling_back.contains(&hook.at.hook) && hook.at.point.is_some() && is_of_this(&hook)
        })
}

/// What the hooks of a fleet wait for, in a sentence, if there are any: the failure and the pending approvals or, if
/// there are none of these, the first current hook.
#[must_use]
pub fn waits_for(facts: &FleetFacts, deployment: &str, namespace: &str) -> Option<String> {
    let object = argument_of(facts.kind.short(), deployment, namespace);
    let is_rollout = facts.rollout.now != Rollout::None;
    let failure = failure(facts).map(|failure| with_ways_out(&failure, &object, is_rollout));
    let people = people(facts, deployment, namespace);
    if failure.is_none() && people.is_none() {
        return current_hooks(facts).next().map(|hook| format!("{}: {}", hook.name(), hook.at.message));
    }
    Some(failure.into_iter().chain(people).collect::<Vec<_>>().join("; "))
}

/// Which approvals are pending, and how to give them, in a sentence.
#[must_use]
pub fn people(facts: &FleetFacts, deployment: &str, namespace: &str) -> Option<String> {
    let current_hooks: Vec<CurrentHook<'_>> = asking(facts).collect();
    let [first, others @ ..] = current_hooks.as_slice() else { return None };
    let object = argument_of(facts.kind.short(), deployment, namespace);
    let verb = format!("waiting for approval: windlass approve {object}");
    if others.is_empty() {
        let id = &first.at.task_id;
        return Some(format!("{}: {verb}, or annotate {ANNOTATION_APPROVE}={id}", first.name()));
    }
    let names: Vec<String> = current_hooks.iter().map(CurrentHook::name).collect();
    Some(format!("{}: {verb}", some_of(&names.iter().map(String::as_str).collect::<Vec<_>>())))
}

/// True if a rollout's clock is stopped because a hook runs, which has a clock of its own, or has failed. A node that
/// leaves takes room in the wave until its hook is done, so its hook counts as well. So do those of the other set of
/// the rollout: the new one before the promotion, the old one after it. A set of an earlier rollout does not stop the
/// clock.
#[must_use]
pub fn stop_the_clock(facts: &FleetFacts) -> bool {
    facts.rollout.at_hook.is_some() || facts.nodes_of_rollout().any(|c| c.at_hook.is_some())
}

/// True if nothing more is granted because a hook has failed, either of the fleet's own plan or of a node that was
/// granted the target. A node that is still at an earlier target is granted the new one, and leaves its failed hook
/// that way.
#[must_use]
pub fn hold_grants(facts: &FleetFacts, rollout_target: &RolloutTarget) -> bool {
    let failed = |at: &Option<AtHook>| at.as_ref().is_some_and(|at| at.failed);
    failed(&facts.rollout.at_hook)
        || facts.wanted().any(|c| failed(&c.at_hook) && facts.is_granted(c, rollout_target))
}

/// True while a `BeforeRollout` hook runs. No node moves to the target until it is finished.
#[must_use]
pub fn is_before_rollout(facts: &FleetFacts) -> bool {
    facts.rollout.at_hook.as_ref().is_some_and(|at| at.point == Some(HookPoint::BeforeRollout))
}

/// Which new nodes a rollout creates, for the hooks that follow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NewNodes {
    /// Those of a new fleet.
    pub of_fleet: bool,
    /// Those that a higher number of replicas adds.
    pub of_scale_up: bool,
}

impl NewNodes {
    fn points(self) -> Vec<HookPoint> {
        let all =
            [(self.of_fleet, HookPoint::AfterFirstCreation), (self.of_scale_up, HookPoint::AfterScaleUp)];
        all.into_iter().filter(|(is_due, _)| *is_due).map(|(_, point)| point).collect()
    }
}

/// What determines at which points a rollout's plan runs hooks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HookContext {
    /// The rollout's cause.
    pub cause: Option<Cause>,
    /// True if each node is rolled at the revision in its own spec.
    pub own: bool,
    /// True if it creates a set. Then it is no repair, whatever its cause.
    pub creates_set: bool,
    /// True if it is a rollback.
    pub is_way_back: bool,
    /// True if it continues a promotion past the point of no return.
    pub is_past_return: bool,
    /// The hooks that follow the creation of nodes.
    pub new_nodes: NewNodes,
}

impl HookContext {
    /// The points at which its plan runs hooks. A repair, a rollback and claims that grow run none but those of nodes that are
    /// created meanwhile. A rollout that only creates nodes has no others.
    #[must_use]
    pub fn points(self) -> Vec<HookPoint> {
        let is_repair = match self.cause {
            Some(Cause::ChildDrift) => !self.creates_set,
            // A full volume must not wait for what a release has to wait for.
            Some(Cause::ClaimsGrown | Cause::FirstCreation | Cause::ScaledUp) => true,
            // A repair that is retried.
            Some(Cause::RetryRequested) => self.own,
            _ => false,
        };
        let mut points = self.new_nodes.points();
        if is_repair || self.is_way_back {
            return points;
        }
        let is_behind = |at: HookPoint| matches!(at, HookPoint::BeforeRollout | HookPoint::BeforePromotion);
        let is_of_rollout = |at: &HookPoint| !at.is_of_node() && !HookPoint::OF_NEW_NODES.contains(at);
        let of_fleet = HookPoint::ALL.into_iter().filter(is_of_rollout);
        points.extend(of_fleet.filter(|at| !(self.is_past_return && is_behind(*at))));
        points
    }

    /// The same with the hooks after the creation of nodes: those of the cause, and those that a plan has not done, which is
    /// followed by this one or is this one.
    #[must_use]
    pub fn owing(self, plan: Option<&Plan>) -> Self {
        let owes = |point| plan.is_some_and(|plan| is_left_at(plan, point));
        let NewNodes { of_fleet, of_scale_up } = self.new_nodes;
        let new_nodes = NewNodes {
            of_fleet: of_fleet
                || self.cause == Some(Cause::FirstCreation)
                || owes(HookPoint::AfterFirstCreation),
            of_scale_up: of_scale_up || self.cause == Some(Cause::ScaledUp) || owes(HookPoint::AfterScaleUp),
        };
        Self { new_nodes, ..self }
    }

    /// The context of the rollout in a status, if there is one.
    #[must_use]
    pub fn of(status: &NodeDeploymentStatus) -> Option<Self> {
        let rollout = status.rollout.as_ref()?;
        let cause = rollout.cause.parse().ok();
        let goes_back = rollout.target_hash == status.last_completed_rollout_hash && !rollout.own_revisions;
        Some(Self {
            cause,
            own: rollout.own_revisions,
            creates_set: !rollout.entrant_set.is_empty(),
            is_way_back: status.rejected.is_some() && goes_back && cause == Some(Cause::Superseded),
            is_past_return: matches!(rollout.stage, Stage::Promoting | Stage::Retiring),
            ..Self::default()
        })
    }
}

/// The `inPlace.steps` after which a rollout stops, as indices: those with more nodes than the step before, and fewer
/// than all.
#[must_use]
pub fn stops(facts: &FleetFacts) -> Vec<usize> {
    let mut before = 0;
    let mut stops = Vec::new();
    for (index, step) in facts.spec.steps.iter().enumerate() {
        let count = nodes_of_step(step, facts.spec.replicas);
        if count > before && count < facts.spec.replicas {
            stops.push(index);
        }
        before = before.max(count);
    }
    stops
}

/// The number of nodes in a step; all nodes if the step no longer exists.
#[must_use]
pub fn size_of_step(facts: &FleetFacts, step: usize) -> i32 {
    facts.spec.steps.get(step).map_or(facts.spec.replicas, |step| nodes_of_step(step, facts.spec.replicas))
}

/// The nodes that count for a step: those that were granted the target.
fn taken<'a>(
    facts: &'a FleetFacts,
    rollout_target: &'a RolloutTarget,
) -> impl Iterator<Item = &'a ChildFacts> {
    let is_moved = |c: &&ChildFacts| c.ordinal >= facts.held_below() || *rollout_target == RolloutTarget::Own;
    facts.wanted().filter(move |c| is_moved(c) && facts.is_granted(c, rollout_target))
}

/// The grants that keep a rollout within its step. A node that already runs the target is granted it even if the step
/// is full, and so is a node that is in flight to another target, so that it is not left there.
#[must_use]
pub fn within_step(
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    step: usize,
    grants: Vec<Grant>,
) -> Vec<Grant> {
    let mut room = size_of_step(facts, step) - taken(facts, rollout_target).count() as i32;
    let mut within = Vec::new();
    for grant in grants {
        let free = matches!(grant.clause, Clause::RunsTarget | Clause::InFlightUnspent);
        if free || room > 0 {
            room -= 1;
            within.push(grant);
        }
    }
    within
}

/// True if the nodes of a step have converged: as many nodes as it has, or as may move, were granted the target, and
/// each of them runs it and serves.
#[must_use]
pub fn is_step_done(facts: &FleetFacts, rollout_target: &RolloutTarget, step: usize) -> bool {
    let may_move = facts
        .wanted()
        .filter(|c| c.ordinal >= facts.held_below() || *rollout_target == RolloutTarget::Own)
        .count();
    let size = size_of_step(facts, step).min(may_move as i32);
    let mut count = 0;
    let all = taken(facts, rollout_target).all(|c| {
        count += 1;
        facts.is_updated(c, rollout_target) && !c.is_disrupted()
    });
    all && count >= size
}

/// True if a step has all its nodes, so that a missing node is created at the previous revision.
#[must_use]
pub fn is_step_full(facts: &FleetFacts, target: &RolloutHash) -> bool {
    let Some(step) = facts.rollout.step else { return false };
    let at_target = facts.wanted().filter(|c| c.spec_hash == *target).count() as i32;
    at_target >= size_of_step(facts, step)
}
