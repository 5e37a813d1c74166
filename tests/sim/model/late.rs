//! A late write of an old leader: it was decided on earlier facts, the process was suspended, and another replica
//! leads now. It succeeds only if its object is unchanged (or, for a pod, the same).
//!
//! With the lease, the write lands within the request's time-out, and a new leader waits that long, then lists: then
//! every property holds. If the process is suspended between its last look at the clock and the write itself, no
//! lease helps; then one more node may be down, but not two.

use crate::model::faults::start_again;
use crate::model::state::{Child, Fleet, Lands, Late, Node, Pod, Set, State, World};
use crate::model::step::{Edge, Steps, Who, create, grant};

impl Late {
    /// The state after it has landed; `own`: the operator's caches have it at once.
    pub fn landed(&self, world: &World, state: &State, own: bool) -> State {
        let min_ready = world.min_ready;
        let mut next = *state;
        match *self {
            Self::Grant { node, version, granted, wave, pinned } => {
                let given = |c: Child| Child { version, granted, spent: false, pinned, behind: true, ..c };
                grant(&mut next.nodes[usize::from(node)], given, wave, own, min_ready);
            }
            Self::Create { node, version, granted, wave } => {
                create(&mut next, usize::from(node), version, granted, wave, own);
            }
            Self::Remove { node } => next.nodes[usize::from(node)].remove(),
            Self::Delete { node } => {
                let node = &mut next.nodes[usize::from(node)];
                node.taken_down |= node.is_at_work(world) && !node.given_freely;
                node.terminating = true;
            }
            Self::CreateSet { node, template } => {
                let node = &mut next.nodes[usize::from(node)];
                *node = Node {
                    set: Set::Live,
                    template,
                    remembered: own,
                    recorded: false,
                    observed: false,
                    update_revision: 0,
                    ..*node
                };
            }
            Self::Template { node, template } => {
                let node = &mut next.nodes[usize::from(node)];
                *node = Node { template, remembered: own, recorded: false, observed: false, ..*node };
            }
            Self::Status { node, child, same_pod, recorded } => {
                let node = &mut next.nodes[usize::from(node)];
                node.write(|c| *c = child);
                (node.same_pod, node.recorded) = (same_pod, recorded);
                node.told_ready = min_ready && child.available && node.pod == Pod::Ready;
                let rolls = child.doing.is_rolling();
                if child.available && child.hash == child.granted && !rolls {
                    node.given_freely = false;
                }
            }
            Self::Fleet { fleet } => {
                next.fleet = Fleet { operator: state.fleet.operator, ..fleet };
            }
        }
        next
    }

    /// True if its object changed.
    fn is_void(&self, before: &State, after: &State) -> bool {
        let of = |state: &State, node: u8| state.nodes[usize::from(node)];
        let set = |n: Node| (n.set, n.template, n.observed, n.update_revision);
        match *self {
            Self::Grant { node, .. } | Self::Remove { node } | Self::Status { node, .. } => {
                of(before, node).child != of(after, node).child
            }
            Self::Template { node, .. } => set(of(before, node)) != set(of(after, node)),
            // A name may be free again.
            Self::Create { .. } => false,
            // The garbage collector deletes what belonged to a deleted node.
            Self::CreateSet { node, .. } => !of(after, node).child.exists,
            Self::Delete { node } => of(after, node).pod == Pod::Absent || of(after, node).terminating,
            Self::Fleet { .. } => {
                let operator = before.fleet.operator;
                before.fleet != Fleet { operator, ..after.fleet }
            }
        }
    }

    /// The write's effect after this step: a status identifies its pod by UID and the template by the StatefulSet's
    /// generation, so it says nothing about later ones.
    fn since(self, before: &State, after: &State) -> Self {
        let Self::Status { node, child, same_pod, recorded } = self else { return self };
        let (was, is) = (&before.nodes[usize::from(node)], &after.nodes[usize::from(node)]);
        let is_another_set = (was.set, was.template) != (is.set, is.template);
        Self::Status {
            node,
            child,
            same_pod: same_pod && is.pod != Pod::Absent,
            recorded: recorded && !is_another_set,
        }
    }

    /// True if no object has this name.
    fn may_land(&self, state: &State) -> bool {
        match *self {
            Self::Create { node, .. } => !state.nodes[usize::from(node)].child.exists,
            Self::CreateSet { node, .. } => {
                let node = &state.nodes[usize::from(node)];
                node.set == Set::Missing && node.child.exists
            }
            _ => true,
        }
    }
}

/// S1: the number of nodes taken down by Windlass that are down at once. Each was granted by the wave of its time. In worlds
/// with a second container, a node whose main container runs again is not down.
pub fn taken_down(world: &World, next: &State) -> Option<String> {
    let is_back = |n: &&Node| world.beside && n.is_at_work(world) && !n.terminating;
    let down = || next.nodes.iter().filter(|n| n.taken_down && !is_back(n));
    let one_more = u8::from(world.budget.late > 0 && world.lands == Lands::Whenever);
    let most = down().map(|n| n.granted_under).max().unwrap_or_default() + one_more;
    let count = down().count();
    (count > usize::from(most)).then(|| format!("S1: Windlass took down {count} serving nodes at once"))
}

/// Adds a late write to the possible steps of a state.
pub fn add(world: &World, state: &State, steps: &mut Steps) {
    if world.budget.late == 0 {
        return;
    }
    let in_time = world.lands == Lands::InTime;
    if !in_time {
        steps.violations.retain(|v| v.starts_with("S1"));
    }
    let Some(late) = state.late else {
        if state.left.late > 0 {
            let asleep: Vec<Edge> = steps.edges.iter().filter_map(|e| sleeps(state, e)).collect();
            steps.edges.extend(asleep);
        }
        return;
    };
    for edge in &mut steps.edges {
        let is_void = late.is_void(state, &edge.next);
        edge.next.late = (!is_void).then(|| late.since(state, &edge.next));
    }
    let mut add = |what, next: State| {
        let who = if in_time { Who::System } else { Who::World };
        let mut next = State { late: None, ..next };
        if in_time {
            // The new leader lists after its wait.
            start_again(&mut next);
        }
        steps.edges.push(Edge { who, what, node: 0, next, write: None });
    };
    if in_time {
        add("the old leader's request times out", *state);
    }
    if late.may_land(state) {
        let next = late.landed(world, state, false);
        add("the OLD LEADER's write lands", next);
        if matches!(late, Late::Delete { .. }) {
            steps.violations.extend(taken_down(world, &next));
        }
    }
}

fn sleeps(state: &State, edge: &Edge) -> Option<Edge> {
    let write = edge.write?;
    let mut next = State { late: Some(write), ..*state };
    next.left.late -= 1;
    start_again(&mut next);
    let what = "FAULT a leader decides this, sleeps, and another leads";
    Some(Edge { who: Who::World, what, node: edge.node, next, write: None })
}
