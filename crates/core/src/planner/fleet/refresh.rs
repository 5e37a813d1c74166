//! Updates everything in a fleet's status that is observed, not decided. Pure.

use super::decision::{RolloutTarget, Strategy, only_creates};
use super::facts::FleetFacts;
use super::failed::why_held;
use super::sets::{self, SetRollout, stage};
use super::status::{RefreshInput, is_stalled, is_stopped, record_request, rollout_target_of, was_unwatched};
use super::verdicts::refresh_conditions;
use super::{clock, gate, hooks, initial_fill, leave, progress, topology};
use crate::api::TaskType;
use crate::api::at_hook::message_of;
use crate::api::ids::field;
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_SET};
use crate::api::{FleetPhase, NodeDeploymentStatus, Reason, Rollout, Stage};
use crate::engine::Plan;

/// What a paused fleet waits for, as in its status and in the message of each task that would act.
pub const WAITS_TO_BE_RESUMED: &str = "waiting for the fleet to be resumed: spec.paused is true";

/// Updates everything in the status that is observed, not decided.
pub fn refresh(status: &mut NodeDeploymentStatus, facts: &FleetFacts, input: &RefreshInput<'_>) {
    let now = input.now;
    record_request(status, facts);
    status.requested_rollout_hash = facts.requested.to_string();
    if status.restarted_at.is_empty() {
        field(facts.record.restarted_at.as_ref()).clone_into(&mut status.restarted_at);
    }
    status.update_revision = input.update_revision.map(ToString::to_string).unwrap_or_default();
    input.build_id.clone_into(&mut status.build_id);
    input.config_digest.clone_into(&mut status.config_digest);
    status.rejected = status.rejected.take().filter(|r| facts.stays_rejected(r));
    if status.active_set.is_empty() && facts.findings.undecided.is_none() {
        status.active_set = facts.set.to_string();
    }
    sets::status::refresh_retiring(status, facts, now);
    sets::status::refresh_height(status, facts, now);
    if facts.findings.undecided.is_none() {
        status.selector = format!("{LABEL_DEPLOYMENT}={},{LABEL_SET}={}", input.name, status.active_set);
    }
    settle(status, facts);
    status.hooks = hooks::to_look_at(facts);

    let steady = RolloutTarget::Revision(facts.steady_revision().clone());
    let rollout_target = if status.rollout.is_some() { rollout_target_of(status) } else { steady };
    status.replicas = facts.children.len() as i32;
    status.ready_replicas = facts.children.iter().filter(|c| c.pod.ready && !c.terminating).count() as i32;
    status.available_replicas =
        facts.children.iter().filter(|c| c.pod.available && !c.terminating).count() as i32;
    let requested = RolloutTarget::Revision(facts.requested.clone());
    status.updated_replicas = facts
        .wanted()
        .filter(|c| {
            c.spec_hash == facts.requested
                && facts.target_for(c, &requested).is_some_and(|t| c.pod.hash == t.hash)
        })
        .count() as i32;
    gate::refresh(status, facts);
    refresh_rollout(status, facts, &rollout_target, input);
    initial_fill::refresh(status, facts, &rollout_target, now);
    sets::status::refresh_rollout(status, facts);
    let stalled = is_stalled(status, facts, now);
    status.phase = phase(status, facts).to_string();
    refresh_conditions(status, facts, stalled, &rollout_target, input);
    topology::report(status, facts, (input.generation, input.reads_machines, now));
    status.observed_generation = input.generation;
}

/// Records the completion of a fleet without a rollout: the first one, and the one after the fleet was scaled to 0.
fn settle(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    if facts.spec.replicas == 0 && facts.children.is_empty() {
        status.scaled_to_zero = true;
    }
    let filling = status.last_completed_rollout_hash.is_empty() || status.scaled_to_zero;
    let target = RolloutTarget::Revision(facts.requested.clone());
    if status.rollout.is_none()
        && filling
        && facts.record.rejected.is_none()
        && facts.findings.blocker.is_none()
        && facts.is_converged(&target)
    {
        status.last_completed_rollout_hash = facts.requested.to_string();
        status.current_revision.clone_from(&status.update_revision);
        field(facts.spec.build_id.as_ref()).clone_into(&mut status.active_build_id);
        status.scaled_to_zero = false;
    }
    // All its nodes exist again, but not at the desired revision, which was abandoned or is rejected.
    let steady = RolloutTarget::Revision(facts.steady_revision().clone());
    if status.scaled_to_zero && facts.spec.replicas > 0 && facts.is_converged(&steady) {
        status.scaled_to_zero = false;
    }
}

fn refresh_rollout(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    input: &RefreshInput<'_>,
) {
    let stopped = is_stopped(status, facts);
    let unwatched = was_unwatched(status, facts, input.now);
    let set = SetRollout::of(status);
    let held = why_held(status, input.plan);
    let Some(rollout) = status.rollout.as_mut() else { return };
    let (score, ready) = stage::reached(facts, set.as_ref(), rollout_target);
    // A rollout that creates a set counts the nodes of that set.
    let entrants = set.as_ref().filter(|s| s.entrant != facts.set).map(|s| facts.as_set(&s.entrant));
    let fleet = facts;
    let facts = entrants.as_ref().unwrap_or(facts);
    let reading = clock::Reading { score, ready, is_stopped: stopped, is_unwatched: unwatched };
    clock::set(rollout, &clock::advance(clock::of(rollout), fleet, &reading, input.now));
    rollout.nodes = progress::counts(facts, rollout_target);
    let task = input.plan.filter(|plan| plan.is_active()).and_then(Plan::current_task);
    // The old set's nodes are listed as well while they have to halt, or have to report a height before they may be
    // asked to.
    let halts = |set: &SetRollout| set.stage == Stage::Promoting && set.halt_height > 0;
    let asks_heights = |set: &SetRollout| {
        set.is_revocable()
            && set.strategy == Strategy::HardFork
            && task.is_some_and(|task| TaskType::SubmitHalt.is(task))
    };
    let old = set.as_ref().filter(|set| halts(set) || asks_heights(set));
    let old = old.filter(|_| entrants.is_some()).map(|set| (fleet, set));
    let before = std::mem::take(&mut rollout.unconverged);
    let mut unconverged = progress::missing(facts, input.name, rollout_target, &before, input.now);
    if old.is_some_and(|(_, set)| halts(set)) {
        unconverged.extend(progress::missing(fleet, input.name, rollout_target, &before, input.now));
    }
    unconverged.extend(progress::unconverged(facts, rollout_target, old, &before, input.now));
    unconverged.truncate(crate::api::status::UNCONVERGED_LIMIT);
    // New nodes that are created only after the deletion of the old ones are not late.
    let old_first = set.as_ref().is_some_and(|set| set.strategy == Strategy::BlueGreenImmediate);
    let come_later = old_first || rollout.stage == Stage::Promoting;
    if come_later && task.is_some_and(|t| TaskType::RetireIncumbents.is(t)) {
        unconverged.clear();
    }
    rollout.unconverged = unconverged;
    rollout.summary = format!("Updating {}/{}", rollout.nodes.updated, rollout.nodes.total);
    let message = match task {
        _ if held.is_some() => held.unwrap_or_default(),
        // A node that already has its grant finishes, including its hooks.
        _ if facts.spec.paused => {
            let resumed = WAITS_TO_BE_RESUMED.to_owned();
            [Some(resumed), hooks::people(fleet, input.name, input.namespace)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; ")
        }
        _ if fleet.stands_at_gate(rollout_target) && rollout.nodes.failed == 0 => {
            let waits = fleet.rollout.gate.sentence();
            let people = hooks::people(fleet, input.name, input.namespace);
            waits.into_iter().chain(people).collect::<Vec<_>>().join("; ")
        }
        // Nodes that leave may wait for hooks while the rollout itself waits for a user.
        Some(task) if TaskType::AwaitPromotion.is(task) && !task.message.is_empty() => {
            let own = Some(task.message.clone());
            own.into_iter()
                .chain(hooks::waits_for(fleet, input.name, input.namespace))
                .collect::<Vec<_>>()
                .join("; ")
        }
        _ if let Some(sentence) = hooks::waits_for(fleet, input.name, input.namespace) => sentence,
        // An old set that is being removed waits for no node that serves.
        _ if let Some(node) = blocking_node(rollout) => {
            format!("waiting for {}", node.sentence())
        }
        Some(task) => message_of(task),
        None => String::new(),
    };
    // The message mentions the requested restart, so that it does not seem forgotten.
    let message = match &facts.requests.restart {
        Some(restart) if set.is_some() => {
            format!("{message}; the restart requested at {restart} follows the promotion")
        }
        _ => message,
    };
    rollout.message = match leave::waits_for(fleet) {
        Some(leaving) if message.is_empty() || message == leaving => leaving,
        Some(leaving) => format!("{message}; {leaving}"),
        None => message,
    };
}

/// The node that blocks a rollout until a user repairs it.
fn blocking_node(rollout: &Rollout) -> Option<&crate::api::Unconverged> {
    let worst = rollout.unconverged.first().filter(|_| rollout.stage != Stage::Retiring)?;
    (rollout.nodes.failed > 0 || worst.reason == Reason::InvalidSpec.as_ref()).then_some(worst)
}

fn phase(status: &NodeDeploymentStatus, facts: &FleetFacts) -> FleetPhase {
    let (wanted, failed) =
        (facts.expected_nodes().count(), facts.expected_nodes().filter(|c| c.pod.failed).count());
    if facts.terminating {
        FleetPhase::Terminating
    } else if facts.spec.paused {
        FleetPhase::Paused
    } else if wanted > 0 && failed == wanted {
        FleetPhase::Failed
    } else if status.rollout.as_ref().is_some_and(|rollout| !only_creates(rollout)) {
        FleetPhase::Upgrading
    } else if failed > 0 {
        FleetPhase::Degraded
    } else if status.last_completed_rollout_hash.is_empty() {
        FleetPhase::Initializing
    } else if facts.missing().is_empty()
        && facts.conflicts.is_empty()
        && facts.wanted().all(|c| c.pod.ready && !c.terminating)
    {
        FleetPhase::Ready
    } else {
        FleetPhase::Pending
    }
}
