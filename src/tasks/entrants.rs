//! What the tasks of a rollout that creates a set have in common: they keep the nodes of that set existing and at the
//! target while they wait for them, and ask the nodes of the old set to halt.

use serde_json::json;

use super::FleetScope;
use crate::api::{GrantedBy, NodeName, PlanId, Stage, TaskType};
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::apply::many::{OnFailure, for_each_concurrent};
use crate::apply::{fleet_objects, traffic};
use crate::engine::sentence::some_of;
use crate::engine::{Outcome, Plan, TaskContext, TaskError, TaskRecord, TaskState};
use crate::planner::fleet::sets::stage::{has_switched, skips_caught_up};
use crate::planner::fleet::{
    ChildFacts, FleetFacts, RolloutTarget, SetRollout, SidecarFacts, Strategy, WAITS_TO_BE_RESUMED,
    next_grants,
};
use crate::planner::hooks::is_of_list;
use windlass_kube_port::{ClusterError, Key, Kind, Part, PatchOp, Target};

/// The set that will take over.
pub(super) struct Entrants {
    /// The rollout that creates the set.
    pub rollout: SetRollout,
    /// The fleet, with this set as if it were the active one.
    pub view: FleetFacts,
}

/// The result of keeping the set complete and at the target.
#[must_use]
pub(super) enum Ensured {
    /// The set is complete.
    Whole(Box<Entrants>),
    /// There is nothing to do now; the outcome is what is waited for, or that everything was done before.
    NotNow(Outcome),
}

impl Ensured {
    fn waiting(sentence: impl Into<String>) -> Self {
        Self::NotNow(Outcome::waiting(sentence))
    }
}

impl Entrants {
    /// Done if every node of the set runs the target; otherwise what is waited for.
    pub fn running(&self) -> Outcome {
        let names = self.names(|c| !self.view.runs(c, &self.rollout.target));
        if names.is_empty() {
            return Outcome::Done;
        }
        Outcome::waiting(format!("waiting for {} to run the target", some_of(&names)))
    }

    /// Done if every node of the set is available and its sidecar reports that it has caught up; otherwise what is
    /// waited for.
    pub fn caught_up(&self) -> Outcome {
        let behind = self.names(|c| !c.is_caught_up());
        if behind.is_empty() {
            return Outcome::Done;
        }
        let unready = self.names(|c| !c.pod.ready || c.terminating);
        let unproven = self.names(|c| !c.pod.available);
        let at_hooks = self.names(ChildFacts::is_at_first_start);
        Outcome::waiting(if !unready.is_empty() {
            format!("waiting for {} to be ready", some_of(&unready))
        } else if !unproven.is_empty() {
            format!("waiting for {} to be ready for minReadySeconds", some_of(&unproven))
        } else if !at_hooks.is_empty() {
            format!("waiting for the hooks at AfterCreate of {}", some_of(&at_hooks))
        } else if let Some(node) = self.view.wanted().find_map(unreachable) {
            format!("waiting for {node}")
        } else {
            format!("waiting for {} to catch up, as reported by its sidecar", some_of(&behind))
        })
    }

    /// True if every node of the set runs the target and is available, caught up or not.
    pub fn are_available(&self, fleet: &FleetScope) -> bool {
        let is_there = |c: &ChildFacts| c.pod.ready && c.pod.available && !c.terminating;
        fleet.facts().entrants_run(&self.rollout) && self.view.wanted().all(is_there)
    }

    /// Done if the new nodes may take over now; otherwise what is waited for. Conditions that held earlier are checked
    /// again, except those that a person skipped.
    pub fn may_take_over(&self, fleet: &FleetScope, plan: &Plan) -> Outcome {
        if !fleet.facts().entrants_run(&self.rollout) {
            return match self.running() {
                Outcome::Done => Outcome::waiting("waiting for every new node to run the target"),
                waiting => waiting,
            };
        }
        let is_free =
            self.rollout.strategy != Strategy::BlueGreen || self.is_forced(fleet) || skips_caught_up(plan);
        if is_free { Outcome::Done } else { self.caught_up() }
    }

    /// True if a user forces the promotion, or has forced it: once that is recorded, `spec.forcePromote` is spent.
    pub fn is_forced(&self, fleet: &FleetScope) -> bool {
        let recorded = fleet.fleet.status.rollout.as_ref().is_some_and(|r| r.forced);
        recorded || (self.view.requests.force_promote && fleet.blocker.is_none())
    }

    fn names(&self, wanted: impl Fn(&ChildFacts) -> bool) -> Vec<&str> {
        self.view.wanted().filter(|c| wanted(c)).map(|c| c.name.as_str()).collect()
    }
}

/// Returns a sentence with the reason if a node's sidecar cannot be reached.
pub(super) fn unreachable(child: &ChildFacts) -> Option<String> {
    let why = child.health.unreachable.as_ref()?;
    Some(format!("{}: SidecarUnreachable: {why}", child.name))
}

/// The problem with the fleet's Service, in a sentence, if traffic could not be moved now: no node would receive
/// traffic if the old nodes stopped before that is fixed. No other problem of a spec keeps traffic.
pub(super) fn why_traffic_stays(fleet: &FleetScope) -> Option<String> {
    if let Some(sentence) = fleet_objects::taken_service(fleet) {
        return Some(format!("waiting for the fleet's Service: {sentence}"));
    }
    if let Some(blocker) = fleet.blocker.as_ref().filter(|blocker| blocker.is_of_service()) {
        return Some(format!("waiting: {blocker}"));
    }
    fleet.facts().service.is_missing.then(|| "waiting for the fleet's Service to exist".to_owned())
}

/// Creates the missing nodes of the new set, and grants the target to those that are not at it. Until the set is
/// complete
/// the outcome says what it waits for. Once traffic has moved the outcome is done: the nodes serve, and no earlier task
/// has anything left to do.
pub(super) async fn ensure_entrants(fleet: &FleetScope, plan: &PlanId) -> Result<Ensured, TaskError> {
    let Some(rollout) = fleet.set_rollout() else {
        return Err(TaskError::terminal("the status has no set of nodes to promote"));
    };
    if rollout.stage == Stage::Retiring {
        return Ok(Ensured::NotNow(Outcome::Done));
    }
    let facts = fleet.facts();
    if facts.spec.paused {
        return Ok(Ensured::waiting(WAITS_TO_BE_RESUMED));
    }
    if let Some(sentence) = facts.rollout.gate.sentence() {
        return Ok(Ensured::waiting(sentence));
    }
    if facts.spec.replicas == 0 {
        return Ok(Ensured::waiting("waiting for replicas to be above 0: there is no node to promote"));
    }
    let view = facts.as_set(&rollout.entrant);
    let target = rollout.target.clone();
    if !view.is_known(&target) {
        let advice = if rollout.is_revocable() {
            "change the template, or delete and create it again"
        } else {
            "restore its spec.template, because no other revision can be promoted now"
        };
        return Err(TaskError::terminal(format!(
            "the ControllerRevision of {target} does not exist or cannot be read: {advice}"
        )));
    }
    let service = fleet.view.services.get(&fleet.fleet.meta.key()).filter(|s| fleet.owns(&s.meta));
    if service.is_some_and(|service| traffic::is_at(&service, &rollout.entrant)) {
        // A plan that takes the place of one that failed: a grant could take down nodes that serve.
        fleet.create_nodes(&view, |_, _| Some(target.clone())).await?;
    } else if let Some(differs) = bring_to_target(fleet, &rollout, plan).await? {
        return Ok(Ensured::NotNow(Outcome::recheck(differs, REQUEUE_STALE_PODS)));
    }
    let view = fleet.facts().as_set(&rollout.entrant);
    if let Some(conflict) = view.conflicts.first() {
        return Ok(Ensured::waiting(conflict.message.clone()));
    }
    if !view.missing().is_empty() {
        return Ok(Ensured::waiting("waiting for new nodes to be created"));
    }
    Ok(Ensured::Whole(Box::new(Entrants { rollout, view })))
}

/// Creates the missing nodes of the new set, and grants the target to those that are not at it. Traffic does not
/// depend on
/// them yet, and nothing of the set has ever completed, but those whose main containers run may do their work and go
/// one
/// wave at a time. Returns what differs from the assumptions, in a sentence, if something does.
async fn bring_to_target(
    fleet: &FleetScope,
    rollout: &SetRollout,
    plan: &PlanId,
) -> Result<Option<String>, ClusterError> {
    let target = &rollout.target;
    fleet.create_nodes(&fleet.facts().as_set(&rollout.entrant), |_, _| Some(target.clone())).await?;
    let rollout_target = RolloutTarget::Revision(target.clone());
    let view = fleet.facts().as_set(&rollout.entrant).with(|f| f.record.last_completed = None);
    let grants = next_grants(&view, &rollout_target);
    fleet.grant_if_pods_confirmed(&view, grants, GrantedBy::Plan(plan)).await
}

/// Keeps the new set complete while its plan runs a hook, or is stuck at one that failed: no task that waits for the
/// set's nodes runs meanwhile. Once traffic has moved, only missing nodes are created: a grant beyond the wave could
/// take down nodes that serve.
pub(crate) async fn keep_whole_at_hook(fleet: &FleetScope, plan: &Plan) -> Result<(), ClusterError> {
    let is_made = |t: &TaskRecord| TaskType::CreateEntrants.is(t) && t.state == TaskState::Complete;
    if !plan.current_task().is_some_and(is_of_list) || !plan.tasks.iter().any(is_made) {
        return Ok(());
    }
    let facts = fleet.facts();
    let waits = facts.spec.paused || facts.rollout.gate.sentence().is_some();
    let Some(rollout) = fleet.set_rollout().filter(|r| r.stage != Stage::Retiring && !waits) else {
        return Ok(());
    };
    let view = facts.as_set(&rollout.entrant);
    if facts.spec.replicas == 0 || !view.is_known(&rollout.target) {
        return Ok(());
    }
    if has_switched(plan) {
        return fleet.create_nodes(&view, |_, _| Some(rollout.target.clone())).await;
    }
    bring_to_target(fleet, &rollout, &plan.id).await.map(drop)
}

/// The nodes of the old set whose spec does not ask them to halt yet. A node without a sidecar cannot be asked.
pub(super) fn unasked(fleet: &FleetScope, rollout: &SetRollout) -> Vec<NodeName> {
    let facts = fleet.facts();
    let unasked = facts
        .children
        .iter()
        .filter(|c| !c.terminating && c.sidecar.as_ref().is_some_and(|s| !is_asked(s, rollout)));
    unasked.map(|c| c.name.clone()).collect()
}

/// True if a node of the old set was asked to halt already.
pub(super) fn is_begun(fleet: &FleetScope, rollout: &SetRollout) -> bool {
    let facts = fleet.facts();
    facts.children.iter().any(|c| c.sidecar.as_ref().is_some_and(|s| is_asked(s, rollout)))
}

fn is_asked(sidecar: &SidecarFacts, rollout: &SetRollout) -> bool {
    sidecar.halt_height == rollout.halt_height && sidecar.halt_task.is_some()
}

/// Asks the nodes of the old set to halt, each in a separate patch.
pub(super) async fn request_halt(
    fleet: &FleetScope,
    rollout: &SetRollout,
    cx: &TaskContext<'_>,
) -> Result<(), ClusterError> {
    let task = cx.plan.tasks.iter().find(|t| TaskType::SubmitHalt.is(t)).map_or(&cx.record.id, |t| &t.id);
    if fleet.facts().spec.paused {
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
    for_each_concurrent(unasked(fleet, rollout), OnFailure::Stop, ask).await.map(drop)
}
