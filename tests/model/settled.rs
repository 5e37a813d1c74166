//! What must be so in a state in which nothing happens by itself any more.

use crate::state::{Doing, Goal, NO_VERSION, Node, Outcome, Pod, State, World, hash_of};

/// What must be so in a state in which nothing happens by itself any more.
pub fn is_settled(world: &World, state: &State) -> Result<(), String> {
    let fleet = &state.fleet;
    let nodes = &state.nodes[..fleet.replicas as usize];
    let works = |hash: u8| !world.is_broken(hash);
    for (index, node) in state.nodes.iter().enumerate() {
        if node.child.exists && node.child.behind {
            return Err(format!("L: the status of node {index} is behind for ever"));
        }
        if node.child.exists && index >= nodes.len() {
            return Err(format!("L: surplus node {index} stays"));
        }
    }
    if let Some(index) = nodes.iter().position(|n| !n.child.exists) {
        return Err(format!("L: node {index} is missing for ever"));
    }
    if fleet.paused {
        for (index, node) in nodes.iter().enumerate().filter(|(_, n)| !n.dead && n.pod != Pod::Ready) {
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
    // The first creation of a fleet is complete by what is observed, without a plan.
    let filling = fleet.completed == NO_VERSION && fleet.rejected.is_none();
    if fleet.rollout.is_some() || filling {
        is_held(world, state, nodes)
    } else {
        is_done(world, state, nodes)
    }
}

/// What must be so while a rollout stands still.
fn is_held(world: &World, state: &State, nodes: &[Node]) -> Result<(), String> {
    let fleet = &state.fleet;
    let target = |n: &Node| match fleet.rollout {
        Some(Goal::Own) => hash_of(n.child.version, fleet.operator),
        Some(Goal::Version(version)) => hash_of(version, fleet.operator),
        None => hash_of(fleet.wanted, fleet.operator),
    };
    let mut excuse = nodes.iter().any(|n| n.dead);
    for (index, node) in nodes.iter().enumerate() {
        let wanted = target(node);
        excuse |= world.is_broken(wanted);
        if !node.dead && node.pod != Pod::Ready && !world.is_broken(wanted) {
            return Err(format!(
                "L: node {index} is down though the wanted version is good: the fix never reaches it"
            ));
        }
        let drifted = node.child.available && node.child.spent && node.child.hash != node.child.granted;
        if node.pod == Pod::Ready && node.pod_revision != node.child.granted && !drifted {
            return Err(format!("L: node {index} serves, and never gets to its grant"));
        }
    }
    if !excuse {
        return Err("L: a rollout stands still though its target is good and no machine is dead".to_owned());
    }
    let down = nodes.iter().filter(|n| n.pod != Pod::Ready).count();
    let is_pending = nodes.iter().any(|n| n.pod == Pod::Ready && n.child.granted != target(n));
    if is_pending && down < usize::from(fleet.max_unavailable) {
        return Err("L: the wave has room, and a serving node is not granted".to_owned());
    }
    if down == 0 {
        return Err("L: a rollout stands still, and nobody is down".to_owned());
    }
    Ok(())
}

/// What must be so where no rollout is active.
fn is_done(world: &World, state: &State, nodes: &[Node]) -> Result<(), String> {
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
        if node.dead || world.is_broken(child.granted) {
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
