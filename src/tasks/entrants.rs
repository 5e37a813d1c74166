//! What the tasks of a rollout that makes a set have in common: the nodes of that set are kept existing and at the
//! target while it is waited for them, and those of the old one are asked to halt.

use serde_json::json;

use super::FleetScope;
use crate::api::{GrantedBy, NodeName, PlanId, Stage, TaskType};
use crate::apply::many::{OnFailure, each};
use crate::cluster::{ClusterError, Key, Kind, Part, PatchOp, Target};
use crate::engine::sentence::some_of;
use crate::engine::{Outcome, Plan, TaskContext, TaskError, TaskRecord, TaskState};
use crate::planner::fleet::sets::stage::has_switched;
use crate::planner::fleet::{
    ChildFacts, Clause, FleetFacts, Grant, RolloutTarget, SetRollout, SidecarFacts, Strategy,
    WAITS_TO_BE_RESUMED,
};
use crate::planner::hooks::is_of_list;

/// The set that is to take over.
pub(super) struct Entrants {
    /// The rollout that makes it.
    pub rollout: SetRollout,
    /// The fleet with this set as if it were the active one.
    pub view: FleetFacts,
}

/// What came of keeping them as they are to be.
#[must_use]
pub(super) enum Ensured {
    /// The set is whole.
    Whole(Box<Entrants>),
    /// There is nothing to be done with it now: what is waited for, or that it was done before.
    NotNow(Outcome),
}

impl Ensured {
    fn waiting(sentence: impl Into<String>) -> Self {
        Self::NotNow(Outcome::waiting(sentence))
    }
}

impl Entrants {
    /// Whether every one of them runs the target; what is waited for if not.
    pub fn running(&self) -> Outcome {
        let names = self.names(|c| !self.view.runs(c, &self.rollout.target));
        if names.is_empty() {
            return Outcome::Done;
        }
        Outcome::waiting(format!("waiting for {} to run the target", some_of(&names)))
    }

    /// Whether every one of them is available and has caught up, by what its sidecar says; what is waited for if not.
    pub fn caught_up(&self) -> Outcome {
        let behind = self.names(|c| !c.is_caught_up());
        if behind.is_empty() {
            return Outcome::Done;
        }
        let unready = self.names(|c| !c.ready || c.terminating);
        let unproven = self.names(|c| !c.available);
        Outcome::waiting(if !unready.is_empty() {
            format!("waiting for {} to be ready", some_of(&unready))
        } else if !unproven.is_empty() {
            format!("waiting for {} to have been ready for minReadySeconds", some_of(&unproven))
        } else if let Some(node) = self.view.wanted().find_map(unreachable) {
            format!("waiting for {node}")
        } else {
            format!("waiting for {} to catch up, by what its sidecar says", some_of(&behind))
        })
    }

    /// Whether the new nodes may take over now. Conditions that held earlier are checked again, except those that a person
    /// skipped.
    pub fn may_take_over(&self, fleet: &FleetScope, plan: &Plan) -> Outcome {
        if !fleet.facts().entrants_run(&self.rollout) {
            return match self.running() {
                Outcome::Done => Outcome::waiting("waiting for every new node to run the target"),
                waiting => waiting,
            };
        }
        let skipped = |t: &TaskRecord| TaskType::AwaitCaughtUp.is(t) && t.state == TaskState::Skipped;
        let is_free = self.rollout.strategy != Strategy::BlueGreen
            || self.is_forced(fleet)
            || plan.tasks.iter().any(skipped);
        if is_free { Outcome::Done } else { self.caught_up() }
    }

    /// True if a user forces the promotion, or has forced it: once recorded, the annotation is spent.
    pub fn is_forced(&self, fleet: &FleetScope) -> bool {
        let recorded = fleet.fleet.status.rollout.as_ref().is_some_and(|r| r.forced);
        recorded || (self.view.force_promote && fleet.invalid.is_none())
    }

    fn names(&self, wanted: impl Fn(&ChildFacts) -> bool) -> Vec<&str> {
        self.view.wanted().filter(|c| wanted(c)).map(|c| c.name.as_str()).collect()
    }
}

/// That a node's sidecar cannot be reached, and why, if so.
pub(super) fn unreachable(child: &ChildFacts) -> Option<String> {
    let why = child.unreachable.as_ref()?;
    Some(format!("{}: SidecarUnreachable: {why}", child.name))
}

/// Creates the missing nodes of the new set, and grants the target to those that are not at it. The nodes do not serve yet, so
/// no wave limits that. Until the set is complete the outcome says what it waits for. Once traffic has moved the outcome is
/// done: the nodes serve, and no earlier task has anything left to do.
pub(super) async fn ensure_entrants(fleet: &FleetScope, plan: &PlanId) -> Result<Ensured, TaskError> {
    let Some(rollout) = fleet.set_rollout() else {
        return Err(TaskError::terminal("the status tells of no set of nodes that is to take over"));
    };
    if rollout.stage == Stage::Retiring {
        return Ok(Ensured::NotNow(Outcome::Done));
    }
    let facts = fleet.facts();
    if facts.paused {
        return Ok(Ensured::waiting(WAITS_TO_BE_RESUMED));
    }
    if facts.replicas == 0 {
        return Ok(Ensured::waiting("waiting for replicas to be above 0: there is no node to promote"));
    }
    let view = facts.as_set(&rollout.entrant);
    let target = rollout.target.clone();
    if !view.is_known(&target) {
        let advice = if rollout.is_revocable() {
            "change the template, or delete and create it again"
        } else {
            "set spec.template to what it said, for no other can be promoted now"
        };
        return Err(TaskError::terminal(format!(
            "the ControllerRevision of {target} is gone or cannot be read: {advice}"
        )));
    }
    bring_to_target(fleet, &rollout, plan).await?;
    let view = fleet.facts().as_set(&rollout.entrant);
    if let Some(conflict) = view.conflicts.first() {
        return Ok(Ensured::waiting(conflict.message.clone()));
    }
    if !view.missing().is_empty() {
        return Ok(Ensured::waiting("waiting for new nodes to be created"));
    }
    Ok(Ensured::Whole(Box::new(Entrants { rollout, view })))
}

/// Creates the missing nodes of the new set, and grants the target to those that are not at it.
async fn bring_to_target(
    fleet: &FleetScope,
    rollout: &SetRollout,
    plan: &PlanId,
) -> Result<(), ClusterError> {
    let target = &rollout.target;
    fleet.create_nodes(&fleet.facts().as_set(&rollout.entrant), |_, _| target.clone()).await?;
    let rollout_target = RolloutTarget::Revision(target.clone());
    let view = fleet.facts().as_set(&rollout.entrant);
    let grant = |c: &ChildFacts| {
        let rendering = view.target_for(c, &rollout_target)?;
        let (name, hash) = (c.name.clone(), rendering.hash.clone());
        Some(Grant { name, revision: target.clone(), hash, clause: Clause::NeverReady })
    };
    let off = view.wanted().filter(|c| !c.terminating && !view.is_granted(c, &rollout_target));
    let grants: Vec<Grant> = off.filter_map(grant).collect();
    fleet.grant_all(grants, GrantedBy::Plan(plan)).await?;
    Ok(())
}

/// Keeps the new set whole while a hook of its plan is under way, or has failed and holds: no task that waits for its nodes
/// runs meanwhile. Once traffic has moved only what is missing is made: a grant beyond the wave could take down what serves.
pub(crate) async fn keep_whole_at_hook(fleet: &FleetScope, plan: &Plan) -> Result<(), ClusterError> {
    let is_made = |t: &TaskRecord| TaskType::CreateEntrants.is(t) && t.state == TaskState::Complete;
    if !plan.current_task().is_some_and(is_of_list) || !plan.tasks.iter().any(is_made) {
        return Ok(());
    }
    let facts = fleet.facts();
    let Some(rollout) = fleet.set_rollout().filter(|r| r.stage != Stage::Retiring && !facts.paused) else {
        return Ok(());
    };
    let view = facts.as_set(&rollout.entrant);
    if facts.replicas == 0 || !view.is_known(&rollout.target) {
        return Ok(());
    }
    if has_switched(plan) {
        return fleet.create_nodes(&view, |_, _| rollout.target.clone()).await;
    }
    bring_to_target(fleet, &rollout, &plan.id).await
}

/// The nodes of the old set whose spec does not ask them to halt yet. One without a sidecar has nobody to ask.
pub(super) fn unasked(fleet: &FleetScope, rollout: &SetRollout) -> Vec<NodeName> {
    let facts = fleet.facts();
    let unasked = facts
        .children
        .iter()
        .filter(|c| !c.terminating && c.sidecar.as_ref().is_some_and(|s| !is_asked(s, rollout)));
    unasked.map(|c| c.name.clone()).collect()
}

/// Whether any of them is asked already.
pub(super) fn is_begun(fleet: &FleetScope, rollout: &SetRollout) -> bool {
    let facts = fleet.facts();
    facts.children.iter().any(|c| c.sidecar.as_ref().is_some_and(|s| is_asked(s, rollout)))
}

fn is_asked(sidecar: &SidecarFacts, rollout: &SetRollout) -> bool {
    sidecar.halt_height == rollout.halt_height && sidecar.halt_task.is_some()
}

/// Asks them, each in a write of its own.
pub(super) async fn ask_to_halt(
    fleet: &FleetScope,
    rollout: &SetRollout,
    cx: &TaskContext<'_>,
) -> Result<(), ClusterError> {
    let task = cx.plan.tasks.iter().find(|t| TaskType::SubmitHalt.is(t)).map_or(&cx.record.id, |t| &t.id);
    if fleet.facts().paused {
        return Ok(());
    }
    let namespace = &fleet.fleet.meta.namespace;
    let ask = |name: NodeName| async move {
        let Some(node) = fleet.view.nodes.get(&Key::new(namespace, name.as_str())) else { return Ok(()) };
        let ops = vec![
            PatchOp::set("/spec/haltHeight", json!(rollout.halt_height)),
            PatchOp::set("/spec/haltTaskID", json!(task)),
        ];
        match fleet.cluster.patch(Target::of(Kind::StatefulNode, &node.meta), Part::Main, ops).await {
            Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    };
    each(unasked(fleet, rollout), OnFailure::Stop, ask).await.map(drop)
}
