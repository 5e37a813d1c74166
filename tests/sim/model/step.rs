//! The possible next steps of a state, and the safety properties of Windlass's steps.

use crate::model::executor::{Effect, Executor};
use crate::model::orchestrator::{Orchestrator, child_facts};
use crate::model::state::{
    Child, Doing, EDITED, Fleet, Goal, Lands, Late, MAX_NODES, NO_VERSION, Node, Outcome, Pod, Set, State,
    World, hash_of, revision_bit, revision_name,
};
use crate::model::{faults, hooks, late};

/// The author of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Who {
    /// Windlass or Kubernetes: spontaneous.
    System,
    /// A person or a fault: it need not happen.
    World,
}

/// A possible next step.
pub struct Edge {
    pub who: Who,
    pub what: &'static str,
    pub node: usize,
    pub next: State,
    /// The write of the step, before which a leader may be suspended.
    pub write: Option<Late>,
}

/// Both halves of the operator.
#[derive(Default)]
pub struct Operator {
    pub executor: Executor,
    pub orchestrator: Orchestrator,
}

/// The possible next steps, and the violations among them.
#[derive(Default)]
pub struct Steps {
    pub edges: Vec<Edge>,
    pub violations: Vec<String>,
}

impl Steps {
    fn system(&mut self, what: &'static str, node: usize, next: State) {
        self.edges.push(Edge { who: Who::System, what, node, next, write: None });
    }

    pub fn world(&mut self, what: &'static str, node: usize, next: State) {
        self.edges.push(Edge { who: Who::World, what, node, next, write: None });
    }

    fn windlass(&mut self, what: &'static str, node: usize, next: State, write: Late) {
        self.edges.push(Edge { who: Who::System, what, node, next, write: Some(write) });
    }
}

/// The version that a node should run, as far as the orchestrator knows.
fn wanted_version(state: &State, child: &Child) -> u8 {
    match state.fleet.rollout {
        Some(Goal::Version(version)) => version,
        _ => child.version,
    }
}

pub fn steps(world: &World, state: &State, operator: &mut Operator) -> Steps {
    let mut steps = Steps::default();
    // A new leader does nothing until the old one's last request is over.
    let leads = world.lands == Lands::Whenever || state.late.is_none();
    if leads {
        orchestrate(world, state, operator, &mut steps);
    }
    for node in 0..world.nodes {
        if leads {
            execute(world, state, node, operator, &mut steps);
        }
        kubernetes(world, state, node, &mut steps);
    }
    faults::add(world, state, &mut steps);
    hooks::add(world, state, &mut steps);
    late::add(world, state, &mut steps);
    steps
}

pub fn views(state: &State) -> [Child; MAX_NODES] {
    state.nodes.each_ref().map(Node::view)
}

/// The orchestrator's cache has its own write at once.
fn own_write(node: &mut Node, change: impl FnOnce(&mut Child)) {
    change(&mut node.child);
    node.known = None;
}

/// S10: a target is only rejected for a stall if a node that was given it has not converged to it. A hook that fails
/// says so itself.
fn check_rejection(world: &World, state: &State, fleet: &Fleet, steps: &mut Steps) {
    let Some((version, Outcome::RolledBack)) = fleet.rejected.filter(|_| world.hooks.is_empty()) else {
        return;
    };
    let target = hash_of(version, state.fleet.operator);
    let falls_short =
        |node: &Node| node.view().granted == target && !node.view().spent && !node.view().available;
    if fleet.rejected != state.fleet.rejected && !state.nodes.iter().any(falls_short) {
        steps.violations.push("S10: a target is rejected for what it did not do".to_owned());
    }
}

fn orchestrate(world: &World, state: &State, operator: &mut Operator, steps: &mut Steps) {
    for (index, node) in state.nodes[..world.nodes].iter().enumerate() {
        if node.known.is_some() {
            let mut next = *state;
            next.nodes[index].known = None;
            steps.system("the orchestrator's cache catches up", index, next);
        }
        if world.min_ready {
            time_passes(state, index, steps);
        }
    }
    let moves = operator.orchestrator.moves(world, &state.fleet, views(state));
    for fleet in &moves.decisions {
        let next = State { fleet: *fleet, ..*state };
        let late = Late::Fleet { fleet: *fleet };
        hooks::check_way_back(fleet, steps);
        check_rejection(world, state, fleet, steps);
        steps.windlass("the orchestrator changes the plan", 0, next, late);
    }
    if let Some(fleet) = moves.status {
        let completes = fleet.completed != state.fleet.completed;
        if completes {
            check_complete(state, fleet.completed, steps);
        }
        let next = State { fleet, ..*state };
        let late = Late::Fleet { fleet };
        steps.windlass("the orchestrator writes the status", 0, next, late);
    }
    if let Some(fleet) = moves.complete {
        check_complete(state, wanted_version(state, &Child::default()), steps);
        let fleet = Fleet { abort_asked: false, ..fleet };
        let next = State { fleet, ..*state };
        let late = Late::Fleet { fleet };
        steps.windlass("the orchestrator says complete", 0, next, late);
    }
    let is_fresh = |node: &usize| state.nodes[*node].known.is_none();
    // Before a node leaves, the fleet's pods are read from the API server itself.
    let is_let_go = |node: &usize| is_fresh(node) && pods_are_as_known(state, *node);
    for node in moves.scale_down.iter().copied().filter(is_let_go) {
        let taken = state.nodes.iter().enumerate().filter(|(i, n)| *i != node && n.taken_down).count();
        let works = state.nodes[node].is_at_work(world) && !state.nodes[node].terminating;
        if works && taken >= usize::from(moves.wave) {
            steps.violations.push("S9: a node that serves is scaled away though the wave is full".to_owned());
        }
        let mut next = *state;
        next.nodes[node].remove();
        next.nodes[node].known = None;
        let late = Late::Remove { node: node as u8 };
        steps.windlass("the orchestrator deletes a surplus node", node, next, late);
    }
    for (node, version) in moves.create.iter().copied().filter(|(n, _)| !state.nodes[*n].child.exists) {
        check_create(state, node, version, steps);
        if state.fleet.completed != NO_VERSION && version != state.fleet.completed {
            hooks::check_given(state, &views(state), "made at another version", steps);
        }
        let late = Late::Create {
            node: node as u8,
            version,
            granted: hash_of(version, state.fleet.operator),
            wave: moves.wave,
        };
        steps.windlass("the orchestrator creates a node", node, late.landed(world, state, true), late);
    }
    let grant = |node: usize, version: u8, pinned: bool| Late::Grant {
        node: node as u8,
        version,
        granted: hash_of(version, state.fleet.operator),
        wave: moves.wave,
        pinned,
    };
    // Grants are written at the same time; any of them may get through, and none rests on another.
    for grants in &moves.grants {
        let due: Vec<_> = grants.iter().filter(|(n, _)| is_fresh(n)).collect();
        for which in 1_u32..1 << due.len() {
            let mut next = *state;
            let mut last = None;
            for (_, (node, version)) in due.iter().enumerate().filter(|(i, _)| which & (1 << i) != 0) {
                check_grant(state, *node, *version, steps);
                hooks::check_given(state, &views(state), "granted", steps);
                next = grant(*node, *version, false).landed(world, &next, true);
                last = Some(grant(*node, *version, false));
            }
            match last.filter(|_| which.is_power_of_two()) {
                Some(late) => steps.windlass("the orchestrator GRANTS", due[0].0, next, late),
                None => steps.system("the orchestrator GRANTS", due[0].0, next),
            }
        }
    }
    for (node, version) in moves.pins.iter().copied().filter(|(n, _)| is_fresh(n)) {
        let late = grant(node, version, true);
        let next = late.landed(world, state, true);
        steps.windlass("the orchestrator pins a node to what it runs", node, next, late);
    }
}

/// Whether the pods are as the orchestrator takes them to be: each node that counts as serving serves, and the one that
/// is to go does not where it counts as down.
fn pods_are_as_known(state: &State, leaving: usize) -> bool {
    let is_as_known = |(index, node): (usize, &Node)| {
        let known = node.view();
        let facts = child_facts(index, &state.fleet, &known);
        // One that leaves whatever the others do is read again as well.
        let runs_unnoticed = known.exists && !facts.main_container_runs() && known.runs != node.child.runs;
        let stays_down = index != leaving || !(node.serves() || runs_unnoticed);
        !known.exists || if facts.is_disrupted() { stays_down } else { node.serves() }
    };
    state.nodes.iter().enumerate().all(is_as_known)
}

/// `minReadySeconds` pass; the orchestrator counts them from what it knows.
fn time_passes(state: &State, index: usize, steps: &mut Steps) {
    let node = &state.nodes[index];
    let waits = |child: &Child| child.available && !child.waited;
    let mut pass = |object_too: bool| {
        let mut next = *state;
        next.nodes[index].time_passes(object_too);
        steps.system("minReadySeconds pass", index, next);
    };
    if node.known.as_ref().is_some_and(waits) {
        pass(false);
    }
    if waits(&node.child) {
        pass(true);
    }
}

/// A grant lands on a node: `own` where the orchestrator's cache knows of it at once.
pub fn grant(node: &mut Node, given: impl Fn(Child) -> Child, wave: u8, own: bool, min_ready: bool) {
    let before = node.child;
    let old_spec = node.spec();
    let change = |child: &mut Child| *child = given(*child);
    if own {
        own_write(node, change);
    } else {
        node.write(change);
    }
    node.old_spec = Some(old_spec);
    let was_moving = before.behind
        || before.granted != before.hash
        || matches!(before.doing, Doing::Update { .. } | Doing::Restart { .. });
    // One that is down when granted counts as down until it converges, and where a node that converged may still
    // wait to be available, that makes two.
    let counts_as_down = min_ready && !(before.available && before.waited);
    let is_broken = (!before.ever || before.failed) && !before.runs;
    if is_broken || counts_as_down {
        node.given_freely = true;
    } else if !was_moving {
        node.given_freely = false;
    }
    // What is in flight was let so by the wave of its time.
    node.granted_under = if was_moving { wave.max(node.granted_under) } else { wave };
    node.disturbed = false;
}

/// A new node is made.
pub fn create(state: &mut State, index: usize, version: u8, granted: u8, wave: u8, own: bool) {
    let made = &mut state.nodes[index];
    let change = |child: &mut Child| {
        *child = Child { exists: true, version, granted, spent: true, behind: true, ..Child::default() };
    };
    if own {
        own_write(made, change);
    } else {
        made.write(change);
    }
    *made = Node {
        disturbed: true,
        given_freely: true,
        taken_down: false,
        old_spec: None,
        granted_under: wave,
        ..*made
    };
}

/// S7: below the partition nothing but what last completed is granted.
fn check_grant(state: &State, index: usize, version: u8, steps: &mut Steps) {
    let fleet = &state.fleet;
    let is_kept = index < usize::from(fleet.partition) && fleet.completed != NO_VERSION;
    if is_kept && version != fleet.completed && matches!(fleet.rollout, Some(Goal::Version(_))) {
        steps.violations.push(format!("S7: node {index} below the partition was granted another version"));
    }
}

/// S7 and S8: below the partition, and while the fleet is paused, a lost node comes back at what last completed.
fn check_create(state: &State, index: usize, version: u8, steps: &mut Steps) {
    let fleet = &state.fleet;
    if fleet.completed == NO_VERSION || version == fleet.completed {
        return;
    }
    if index < usize::from(fleet.partition) {
        steps.violations.push(format!("S7: node {index} below the partition was made at another version"));
    }
    if fleet.paused {
        steps.violations.push(format!("S8: node {index} was made at a new version while paused"));
    }
}

/// S4: what is said to be complete runs everywhere, but for nodes that somebody disturbed.
fn check_complete(state: &State, version: u8, steps: &mut Steps) {
    let target = |node: &Node| match state.fleet.rollout {
        Some(Goal::Own) => node.child.granted,
        _ => hash_of(version, state.fleet.operator),
    };
    for (index, node) in state.nodes[..state.fleet.replicas as usize].iter().enumerate() {
        let target = target(node);
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
    let moves = operator.executor.moves(world, node, state.fleet.operator, state.broken);
    if let Some((child, same_pod, recorded)) = moves.status {
        let late = Late::Status { node: index as u8, child, same_pod, recorded };
        steps.windlass("the executor writes the status", index, late.landed(world, state, true), late);
    }
    if moves.mark {
        let mut next = *state;
        next.nodes[index].becomes_ready(world.min_ready);
        steps.system("the executor marks the pod ready while it waits", index, next);
    }
    let (what, late) = match moves.effect {
        None => return,
        Some(Effect::MarkReady) => {
            let mut next = *state;
            next.nodes[index].becomes_ready(world.min_ready);
            steps.system("the executor marks the pod ready", index, next);
            return;
        }
        Some(Effect::CreateSet(template)) => {
            ("the executor creates the StatefulSet", Late::CreateSet { node: index as u8, template })
        }
        Some(Effect::WriteTemplate(template)) => {
            ("the executor writes the template", Late::Template { node: index as u8, template })
        }
        Some(Effect::DeletePod) => ("the executor DELETES THE POD", Late::Delete { node: index as u8 }),
    };
    let next = late.landed(world, state, true);
    if matches!(late, Late::Delete { .. }) {
        hooks::check_goes(world, state, index, steps);
    }
    if matches!(late, Late::Delete { .. }) && next.nodes[index].taken_down {
        check_delete(world, state, &next, index, operator, steps);
    }
    steps.windlass(what, index, next, late);
}

/// S1, S5 and S6, where Windlass deletes a pod that serves.
fn check_delete(
    world: &World,
    state: &State,
    next: &State,
    index: usize,
    operator: &mut Operator,
    steps: &mut Steps,
) {
    let node = &state.nodes[index];
    if !node.is_at_work(world) || node.given_freely {
        return;
    }
    steps.violations.extend(late::taken_down(world, next));
    // An old leader's write lands on what nobody has decided on.
    if world.budget.late > 0 && world.lands == Lands::Whenever {
        return;
    }
    // What a pod that was just made was made for, a process that starts anew learns from its revision alone, as long as the
    // node's status does not say more; where the revision moves in that moment, the pod is made once more.
    // So too where somebody edits the template in that moment, for it is the last revision that is remembered.
    let starts_anew = (state.left.crash, state.left.operator) != (world.budget.crash, world.budget.operator);
    let is_edited = world.budget.edit > 0 && node.disturbed;
    let forgot = world.drifts() && (starts_anew || is_edited);
    if node.pod_revision == node.child.granted && !node.child.behind && node.old_spec.is_none() && !forgot {
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
    let is_broken = state.is_broken(node.pod_revision);
    let runs = !is_broken || world.broken_runs || world.beside;
    let gets_ready = !is_broken && !node.dead;
    if node.set == Set::Live && !node.observed {
        // Whoever waits for that to replace the pod remembers the revision.
        let sees = world.drifts() && node.template != EDITED;
        happens("the StatefulSet controller sees the template", &|n| {
            (n.observed, n.update_revision) = (true, n.template);
            n.seen = if sees { revision_bit(&revision_name(n.template, n.moved)) } else { n.seen };
        });
    }
    if node.set == Set::Live && node.pod == Pod::Absent && node.update_revision != 0 {
        happens("the StatefulSet controller makes a pod", &|n| {
            (n.pod, n.pod_revision, n.pod_moved) = (Pod::Starting, n.update_revision, n.moved);
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
                pod_moved: false,
                terminating: false,
                orphan: false,
                same_pod: false,
                told_ready: false,
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
        Pod::Running if gets_ready && !world.sidecar => {
            happens("the pod is READY", &|n| n.becomes_ready(world.min_ready));
        }
        Pod::Ready if is_broken && world.beside => happens("the second container breaks", &|n| {
            n.disturb(|n| (n.pod, n.told_ready) = (Pod::Running, false));
        }),
        // Its version ran, and does so no longer.
        Pod::Running | Pod::Ready if !runs => happens("the pod breaks", &|n| {
            n.disturb(|n| (n.pod, n.told_ready) = (Pod::Stuck, false));
        }),
        Pod::Stuck if !node.dead && runs => happens("the pod runs", &|n| n.pod = Pod::Running),
        _ => {}
    }
}
