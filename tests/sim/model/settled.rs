//! Properties of states without spontaneous steps.

use crate::model::hooks;
use crate::model::orchestrator::wave;
use crate::model::state::{Doing, Goal, HookState, NO_VERSION, Node, Outcome, Pod, State, World, hash_of};

/// Checks a state without spontaneous steps.
pub fn is_settled(world: &World, state: &State) -> Result<(), String> {
    let fleet = &state.fleet;
    let nodes = &state.nodes[..fleet.replicas as usize];
    let works = |hash: u8| !state.is_broken(hash);
    let down = nodes.iter().filter(|n| n.pod != Pod::Ready || !n.child.available).count();
    for (index, node) in state.nodes.iter().enumerate() {
        if node.child.exists && node.child.behind {
            return Err(format!("L: the status of node {index} is behind for ever"));
        }
        // Serving nodes leave as the wave allows, so do those whose main containers run, for which those that only are
        // down do not count, and none leaves a paused fleet.
        let moving = nodes.iter().filter(|n| n.pod != Pod::Ready && !n.child.spent).count();
        let in_the_way = if node.pod == Pod::Ready { down } else { moving };
        let stays = fleet.paused || (node.is_at_work(world) && in_the_way >= wave(world, fleet));
        if node.child.exists && index >= nodes.len() && !stays {
            return Err(format!("L: surplus node {index} stays"));
        }
    }
    if let Some(index) = nodes.iter().position(|n| !n.child.exists) {
        return Err(format!("L: node {index} is missing for ever"));
    }
    if fleet.paused {
        for (index, node) in nodes.iter().enumerate().filter(|(_, n)| n.may_serve() && n.pod != Pod::Ready) {
            let granted = node.child.granted;
            let renders = granted == hash_of(node.child.version, fleet.operator);
            if works(granted) && renders {
                return Err(format!("L: paused, granted a good version, not serving: {index}"));
            }
            if node.pod_revision != 0 && works(node.pod_revision) {
                return Err(format!("L: paused, a good pod, not serving: {index}"));
            }
        }
        return Ok(());
    }
    // The first creation of a fleet completes by observation, without a plan.
    let filling = fleet.completed == NO_VERSION && fleet.rejected.is_none();
    if fleet.rollout.is_some() || filling { is_held(world, state, nodes) } else { is_done(state, nodes) }
}

/// Checks a blocked rollout.
fn is_held(world: &World, state: &State, nodes: &[Node]) -> Result<(), String> {
    let fleet = &state.fleet;
    let kept = if fleet.completed == NO_VERSION { 0 } else { usize::from(fleet.partition) };
    let version = |index: usize, n: &Node| match fleet.rollout {
        Some(Goal::Own) => n.child.version,
        Some(Goal::Version(_)) if index < kept => fleet.completed,
        Some(Goal::Version(version)) => version,
        None => fleet.wanted,
    };
    let target = |index: usize, n: &Node| hash_of(version(index, n), fleet.operator);
    let is_partitioned = kept > 0 && !matches!(fleet.rollout, Some(Goal::Version(v)) if v == fleet.completed);
    if fleet.hook.is_left() {
        return hooks::is_held(world, fleet);
    }
    let is_at_hook = |n: &Node| n.child.is_at_hook();
    let is_stopped = nodes.iter().any(|n| is_at_hook(n) && n.child.hook == HookState::Failed);
    let mut excuse = nodes.iter().any(|n| !n.may_serve() || is_at_hook(n));
    for (index, node) in nodes.iter().enumerate() {
        let wanted = target(index, node);
        excuse |= state.is_broken(wanted);
        if node.may_serve() && node.pod != Pod::Ready && !state.is_broken(wanted) && !is_stopped {
            return Err(format!(
                "L: node {index} is down though the wanted version is good: the fix never reaches it"
            ));
        }
        let drifted = node.child.available && node.child.spent && node.child.hash != node.child.granted;
        if node.pod == Pod::Ready && node.pod_revision != node.child.granted && !drifted && !is_at_hook(node)
        {
            return Err(format!("L: node {index} serves, and never gets to its grant"));
        }
        let is_replaced = node.pod_revision == node.child.granted && node.template == node.child.granted;
        if node.mute && !node.dead && !is_replaced {
            return Err(format!("L: a sidecar that cannot be reached keeps the pod of node {index}"));
        }
    }
    let pending = |(index, n): (usize, &Node)| n.pod == Pod::Ready && n.child.granted != target(index, n);
    let is_pending = nodes.iter().enumerate().any(pending);
    if !excuse && is_partitioned && !is_pending {
        return Ok(());
    }
    if !excuse {
        return Err("L: a rollout stands still though its target is good and no machine is dead".to_owned());
    }
    let counts = |n: &&Node| n.pod != Pod::Ready || n.child.unreachable || is_at_hook(n);
    let down = nodes.iter().filter(counts).count();
    if is_pending && !is_stopped && down < wave(world, fleet) {
        return Err("L: the wave has room, and a serving node is not granted".to_owned());
    }
    if down == 0 && !is_partitioned {
        return Err("L: a rollout stands still, and nobody is down".to_owned());
    }
    Ok(())
}

/// Checks a state without an active rollout.
fn is_done(state: &State, nodes: &[Node]) -> Result<(), String> {
    let fleet = &state.fleet;
    match fleet.rejected {
        Some((version, _)) if version != fleet.wanted => {
            return Err("L: another version is rejected than is wanted".to_owned());
        }
        None if fleet.wanted != fleet.completed => {
            return Err("L: idle, and the target not completed".to_owned());
        }
        _ => {}
    }
    for (index, node) in nodes.iter().enumerate() {
        let child = &node.child;
        let drift_is_left = fleet.rejected == Some((fleet.completed, Outcome::Aborted));
        if child.granted != hash_of(child.version, fleet.operator) && !drift_is_left {
            return Err(format!("L: idle, operator drift on node {index}"));
        }
        if fleet.rejected.is_none() && child.version != fleet.wanted {
            return Err(format!("L: idle, node {index} holds another version"));
        }
        if matches!(fleet.rejected, Some((_, Outcome::RolledBack))) && child.version != fleet.completed {
            return Err(format!("L: rolled back, node {index} elsewhere"));
        }
        // A node whose pod was deleted just before an abort passes its hook again, which may never answer.
        if !node.may_serve() || state.is_broken(child.granted) || child.is_at_hook() {
            continue;
        }
        let rules = [
            (node.pod == Pod::Ready, "not serving"),
            (node.pod_revision == child.granted, "serving, and not at its grant"),
            (node.template == child.granted, "its template is not the granted one"),
            (
                child.available && child.hash == child.granted && child.doing == Doing::Nothing,
                "its status says disrupted",
            ),
        ];
        if let Some((_, what)) = rules.iter().find(|(holds, _)| !holds) {
            return Err(format!("L: idle, node {index}: {what}"));
        }
    }
    Ok(())
}
