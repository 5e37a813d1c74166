//! Actions of people and faults, as often as the world allows.

use crate::model::state::{EDITED, Node, Pod, Set, State, World};
use crate::model::step::Steps;

/// Adds all possible steps to a state.
pub fn add(world: &World, state: &State, steps: &mut Steps) {
    fleet(world, state, steps);
    for index in 0..world.nodes {
        node(state, index, steps);
    }
}

fn fleet(world: &World, state: &State, steps: &mut Steps) {
    let fleet = &state.fleet;
    let mut happens = |what: &'static str, node: usize, left: u8, change: &dyn Fn(&mut State)| {
        if left > 0 {
            let mut next = *state;
            change(&mut next);
            steps.world(what, node, next);
        }
    };
    let left = &state.left;
    for version in (0..3).filter(|v| *v != fleet.wanted) {
        happens("USER changes the template", version as usize, left.spec, &|s| {
            s.left.spec -= 1;
            s.fleet.wanted = version;
        });
    }
    happens("USER pauses or resumes", 0, left.pause, &|s| {
        s.left.pause -= 1;
        s.fleet.paused = !s.fleet.paused;
    });
    if (fleet.replicas as usize) < world.nodes {
        happens("USER scales up", 0, left.scale, &|s| {
            s.left.scale -= 1;
            s.fleet.replicas += 1;
        });
    }
    if fleet.replicas > 1 {
        happens("USER scales down", 0, left.scale, &|s| {
            s.left.scale -= 1;
            s.fleet.replicas -= 1;
        });
    }
    if fleet.rollout.is_some() && !fleet.abort_asked {
        happens("USER aborts", 0, left.abort, &|s| {
            s.left.abort -= 1;
            s.fleet.abort_asked = true;
        });
    }
    if fleet.rollout.is_none() && fleet.rejected.is_some_and(|(v, _)| v == fleet.wanted) && !fleet.retry_asked
    {
        happens("USER retries", 0, left.retry, &|s| {
            s.left.retry -= 1;
            s.fleet.retry_asked = true;
        });
    }
    let most = if world.percent { 67 } else { world.nodes as u8 };
    for wave in [most, if world.percent { 34 } else { 1 }].into_iter().filter(|w| *w != fleet.max_unavailable)
    {
        happens("USER changes maxUnavailable", usize::from(wave), left.wave, &|s| {
            s.left.wave -= 1;
            s.fleet.max_unavailable = wave;
        });
    }
    happens("USER moves the partition", 0, left.partition, &|s| {
        s.left.partition -= 1;
        s.fleet.partition = 1 - s.fleet.partition.min(1);
    });
    happens("FAULT v2 does not run any more", 0, left.breaks, &|s| {
        s.left.breaks -= 1;
        s.broken |= 1 << 1;
    });
    happens("FAULT the operator starts again in another version", 0, left.operator, &|s| {
        s.left.operator -= 1;
        s.fleet.operator = 1 - s.fleet.operator;
        start_again(s);
    });
    happens("FAULT the operator starts again", 0, left.crash, &|s| {
        s.left.crash -= 1;
        start_again(s);
    });
}

fn node(state: &State, index: usize, steps: &mut Steps) {
    let (node, left) = (&state.nodes[index], &state.left);
    let mut happens = |what: &'static str, node: usize, left: u8, change: &dyn Fn(&mut State)| {
        if left > 0 {
            let mut next = *state;
            change(&mut next);
            steps.world(what, node, next);
        }
    };
    happens("FAULT a sidecar cannot be reached, or can again", index, left.mute, &|s| {
        s.left.mute -= 1;
        s.nodes[index].mute = !s.nodes[index].mute;
    });
    if node.child.exists {
        happens("USER deletes a node", index, left.child_deleted, &|s| {
            s.left.child_deleted -= 1;
            s.nodes[index].remove();
            s.nodes[index].disturbed = true;
        });
    }
    if node.pod != Pod::Absent && !node.terminating {
        happens("USER deletes a pod", index, left.pod_deleted, &|s| {
            s.left.pod_deleted -= 1;
            s.nodes[index].disturb(|n| n.terminating = true);
        });
    }
    if node.set == Set::Live && node.template != EDITED {
        happens("USER edits the StatefulSet", index, left.edit, &|s| {
            s.left.edit -= 1;
            let n = &mut s.nodes[index];
            *n = Node {
                template: EDITED,
                observed: false,
                remembered: false,
                recorded: false,
                disturbed: true,
                ..*n
            };
        });
    }
    if node.set == Set::Live && !node.moved {
        happens("PLATFORM moves the StatefulSet's revision", index, left.drift, &|s| {
            s.left.drift -= 1;
            s.nodes[index].moved = true;
        });
    }
    if node.set == Set::Live {
        happens("USER deletes the StatefulSet", index, left.set_deleted, &|s| {
            s.left.set_deleted -= 1;
            s.nodes[index].disturb(Node::set_is_gone);
        });
    }
    happens("FAULT a machine dies or revives", index, left.death, &|s| {
        s.left.death -= 1;
        let n = &mut s.nodes[index];
        n.dead = !n.dead;
        if n.dead {
            n.disturb(|n| {
                if matches!(n.pod, Pod::Starting | Pod::Running | Pod::Ready) {
                    (n.pod, n.told_ready) = (Pod::Stuck, false);
                }
            });
        }
    });
}

/// A new process lists everything, without memory.
pub fn start_again(state: &mut State) {
    for node in &mut state.nodes {
        *node = Node { known: None, old_spec: None, remembered: false, seen: 0, ..*node };
    }
}
