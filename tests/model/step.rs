//! Everything that may happen next in a state, and the safety properties of what Windlass does.

use crate::executor::{Effect, Executor};
use crate::orchestrator::Orchestrator;
use crate::state::{Child, Doing, EDITED, Fleet, Goal, MAX_NODES, Node, Pod, Set, State, World, hash_of};

/// Who did it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Who {
    /// Windlass or Kubernetes: it happens by itself.
    System,
    /// A person or a fault: it need not happen.
    World,
}

/// A thing that may happen next.
pub struct Edge {
    pub who: Who,
    pub what: &'static str,
    pub node: usize,
    pub next: State,
}

/// Both halves of the operator.
#[derive(Default)]
pub struct Operator {
    pub executor: Executor,
    pub orchestrator: Orchestrator,
}

/// What may happen next, and what of it must never happen.
#[derive(Default)]
pub struct Steps {
    pub edges: Vec<Edge>,
    pub violations: Vec<String>,
}

impl Steps {
    fn system(&mut self, what: &'static str, node: usize, next: State) {
        self.edges.push(Edge { who: Who::System, what, node, next });
    }

    fn world(&mut self, what: &'static str, node: usize, next: State) {
        self.edges.push(Edge { who: Who::World, what, node, next });
    }
}

/// Which version a node is to run, as far as the orchestrator knows.
fn wanted_version(state: &State, child: &Child) -> u8 {
    match state.fleet.rollout {
        Some(Goal::Version(version)) => version,
        _ => child.version,
    }
}

pub fn steps(world: &World, state: &State, operator: &mut Operator) -> Steps {
    let mut steps = Steps::default();
    orchestrate(world, state, operator, &mut steps);
    for node in 0..world.nodes {
        execute(world, state, node, operator, &mut steps);
        kubernetes(world, state, node, &mut steps);
    }
    people_and_faults(world, state, &mut steps);
    steps
}

fn views(state: &State) -> [Child; MAX_NODES] {
    state.nodes.each_ref().map(Node::view)
}

/// The API server tells the orchestrator's cache of its own write at once.
fn own_write(node: &mut Node, change: impl FnOnce(&mut Child)) {
    change(&mut node.child);
    node.known = None;
}

fn orchestrate(world: &World, state: &State, operator: &mut Operator, steps: &mut Steps) {
    for node in 0..world.nodes {
        if state.nodes[node].known.is_some() {
            let mut next = *state;
            next.nodes[node].known = None;
            steps.system("the orchestrator's cache catches up", node, next);
        }
    }
    let moves = operator.orchestrator.moves(world, &state.fleet, views(state));
    for fleet in &moves.decisions {
        let mut next = *state;
        next.fleet = *fleet;
        let is_new = fleet.rollout.is_some();
        for node in next.nodes.iter_mut().filter(|_| is_new) {
            node.child.by_latest_plan = false;
            node.known =
                node.known.map(|k| Child { by_latest_plan: false, ..k }).filter(|k| *k != node.child);
        }
        steps.system("the orchestrator changes the plan", 0, next);
    }
    if let Some(fleet) = moves.status {
        if fleet.completed != state.fleet.completed {
            check_complete(state, fleet.completed, steps);
        }
        let mut next = *state;
        next.fleet = fleet;
        steps.system("the orchestrator writes the status", 0, next);
    }
    if let Some(fleet) = &moves.complete {
        check_complete(state, wanted_version(state, &Child::default()), steps);
        let mut next = *state;
        next.fleet = Fleet { abort_asked: false, ..*fleet };
        steps.system("the orchestrator says complete", 0, next);
    }
    if let Some(node) = moves.scale_down.filter(|n| state.nodes[*n].known.is_none()) {
        let mut next = *state;
        next.nodes[node].remove();
        next.nodes[node].known = None;
        steps.system("the orchestrator deletes a surplus node", node, next);
    }
    if let Some((node, version)) = moves.create.filter(|(n, _)| !state.nodes[*n].child.exists) {
        let mut next = *state;
        let made = &mut next.nodes[node];
        let granted = hash_of(version, state.fleet.operator);
        own_write(made, |child| {
            *child = Child { exists: true, version, granted, spent: true, behind: true, ..Child::default() };
        });
        *made = Node { disturbed: true, given_freely: true, taken_down: false, old_spec: None, ..*made };
        steps.system("the orchestrator creates a node", node, next);
    }
    // Grants are written at the same time; any of them may get through, and none rests on another.
    let due: Vec<_> = moves.grants.iter().filter(|(n, _)| state.nodes[*n].known.is_none()).collect();
    for which in 1_u32..1 << due.len() {
        let mut next = *state;
        for (_, (node, version)) in due.iter().enumerate().filter(|(i, _)| which & (1 << i) != 0) {
            grant(&mut next, *node, *version, true);
        }
        steps.system("the orchestrator GRANTS", due[0].0, next);
    }
    for (node, version) in &moves.pins {
        if state.nodes[*node].known.is_none() {
            let mut next = *state;
            grant(&mut next, *node, *version, false);
            steps.system("the orchestrator pins a node to what it runs", *node, next);
        }
    }
}

fn grant(state: &mut State, index: usize, version: u8, by_latest_plan: bool) {
    let granted = hash_of(version, state.fleet.operator);
    let node = &mut state.nodes[index];
    let before = node.child;
    let old_spec = node.spec();
    own_write(node, |child| {
        *child = Child { version, granted, spent: false, behind: true, by_latest_plan, ..before };
    });
    node.old_spec = Some(old_spec);
    let was_moving = before.behind
        || before.granted != before.hash
        || matches!(before.doing, Doing::Update { .. } | Doing::Restart { .. });
    if !before.ever || before.failed {
        node.given_freely = true;
    } else if !was_moving {
        node.given_freely = false;
    }
    node.disturbed = false;
}

/// S4: what is said to be complete runs everywhere, but for nodes that somebody disturbed.
fn check_complete(state: &State, version: u8, steps: &mut Steps) {
    for (index, node) in state.nodes[..state.fleet.replicas as usize].iter().enumerate() {
        let target = match state.fleet.rollout {
            Some(Goal::Own) => node.child.granted,
            _ => hash_of(version, state.fleet.operator),
        };
        let runs = node.serves() && node.pod_revision == target && node.template == target;
        let is_so = node.child.exists && node.child.granted == target && runs;
        if !is_so && !node.disturbed {
            steps.violations.push(format!("S4: complete, although node {index} does not run the target"));
        }
    }
}

fn execute(world: &World, state: &State, index: usize, operator: &mut Operator, steps: &mut Steps) {
    let node = &state.nodes[index];
    if !node.child.exists {
        return;
    }
    if node.old_spec.is_some() {
        let mut next = *state;
        next.nodes[index].old_spec = None;
        steps.system("the executor's cache catches up", index, next);
    }
    let moves = operator.executor.moves(world, node, state.fleet.operator);
    if let Some((child, same_pod, recorded)) = moves.status {
        let mut next = *state;
        let written = &mut next.nodes[index];
        let by_latest_plan = written.child.by_latest_plan;
        written.write(|c| *c = Child { by_latest_plan, ..child });
        (written.same_pod, written.recorded) = (same_pod, recorded);
        let rolls = matches!(child.doing, Doing::Update { .. } | Doing::Restart { .. });
        if child.available && child.hash == child.granted && !rolls {
            written.given_freely = false;
        }
        steps.system("the executor writes the status", index, next);
    }
    if moves.mark {
        let mut next = *state;
        next.nodes[index].becomes_ready();
        steps.system("the executor marks the pod ready while it waits", index, next);
    }
    let Some(effect) = moves.effect else { return };
    let mut next = *state;
    let changed = &mut next.nodes[index];
    let what = match effect {
        Effect::CreateSet(template) => {
            *changed = Node {
                set: Set::Live,
                template,
                remembered: true,
                recorded: false,
                observed: false,
                update_revision: 0,
                ..*changed
            };
            "the executor creates the StatefulSet"
        }
        Effect::WriteTemplate(template) => {
            *changed = Node { template, remembered: true, recorded: false, observed: false, ..*changed };
            "the executor writes the template"
        }
        Effect::DeletePod => {
            changed.terminating = true;
            "the executor DELETES THE POD"
        }
        Effect::MarkReady => {
            changed.becomes_ready();
            "the executor marks the pod ready"
        }
    };
    if effect == Effect::DeletePod && node.pod == Pod::Ready && !node.given_freely {
        next.nodes[index].taken_down = true;
        check_delete(world, state, &next, index, operator, steps);
    }
    steps.system(what, index, next);
}

fn check_delete(
    world: &World,
    state: &State,
    next: &State,
    index: usize,
    operator: &mut Operator,
    steps: &mut Steps,
) {
    let node = &state.nodes[index];
    let down = next.nodes.iter().filter(|n| n.taken_down).count();
    if down > usize::from(world.max_unavailable) {
        steps.violations.push(format!("S1: Windlass took down {down} serving nodes at once"));
    }
    if node.pod_revision == node.child.granted && !node.child.behind && node.old_spec.is_none() {
        steps.violations.push("S5: a pod at the granted revision was deleted".to_owned());
    }
    let fleet = &state.fleet;
    let moves = operator.orchestrator.moves(world, fleet, views(state));
    if fleet.rollout.is_some()
        && !fleet.paused
        && moves.decisions.is_empty()
        && node.known.is_none()
        && !node.child.behind
    {
        let target = hash_of(wanted_version(state, &node.child), fleet.operator);
        if node.pod_revision == target && node.child.granted != target && !moves.would_grant[index] {
            steps.violations.push(
                "S6: a pod at the wanted revision was deleted because the wave held its grant back"
                    .to_owned(),
            );
        }
    }
}

fn kubernetes(world: &World, state: &State, index: usize, steps: &mut Steps) {
    let node = &state.nodes[index];
    let mut happens = |what: &'static str, change: &dyn Fn(&mut Node)| {
        let mut next = *state;
        change(&mut next.nodes[index]);
        steps.system(what, index, next);
    };
    let runs = !world.is_broken(node.pod_revision) || world.broken_runs;
    let gets_ready = !world.is_broken(node.pod_revision) && !node.dead;
    if node.set == Set::Live && !node.observed {
        happens("the StatefulSet controller sees the template", &|n| {
            (n.observed, n.update_revision) = (true, n.template);
        });
    }
    if node.set == Set::Live && node.pod == Pod::Absent && node.update_revision != 0 {
        happens("the StatefulSet controller makes a pod", &|n| {
            (n.pod, n.pod_revision) = (Pod::Starting, n.update_revision);
        });
    }
    if node.set == Set::Leaving {
        happens("the garbage collector removes the StatefulSet", &Node::set_is_gone);
    }
    if node.pod != Pod::Absent && node.terminating {
        happens("the pod is gone", &|n| {
            *n = Node {
                pod: Pod::Absent,
                pod_revision: 0,
                terminating: false,
                orphan: false,
                same_pod: false,
                ..*n
            };
        });
    }
    if node.terminating {
        return;
    }
    match node.pod {
        Pod::Starting if node.dead || !runs => happens("the pod is stuck", &|n| n.pod = Pod::Stuck),
        Pod::Starting => happens("the pod runs", &|n| n.pod = Pod::Running),
        Pod::Running if gets_ready && !world.sidecar => happens("the pod is READY", &Node::becomes_ready),
        Pod::Stuck if !node.dead && runs => happens("the pod runs", &|n| n.pod = Pod::Running),
        _ => {}
    }
}

fn people_and_faults(world: &World, state: &State, steps: &mut Steps) {
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
    for (index, node) in state.nodes[..world.nodes].iter().enumerate() {
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
                (s.nodes[index].terminating, s.nodes[index].disturbed) = (true, true);
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
        if node.set == Set::Live {
            happens("USER deletes the StatefulSet", index, left.set_deleted, &|s| {
                s.left.set_deleted -= 1;
                s.nodes[index].set_is_gone();
                s.nodes[index].disturbed = true;
            });
        }
        happens("FAULT a machine dies or revives", index, left.death, &|s| {
            s.left.death -= 1;
            let n = &mut s.nodes[index];
            n.dead = !n.dead;
            if n.dead {
                n.disturbed = true;
                if matches!(n.pod, Pod::Starting | Pod::Running | Pod::Ready) {
                    n.pod = Pod::Stuck;
                }
            }
        });
    }
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

/// A new process lists everything, and remembers nothing.
fn start_again(state: &mut State) {
    for node in &mut state.nodes {
        *node = Node { known: None, old_spec: None, remembered: false, ..*node };
    }
}
