//! Walks through every state of a world, once, the shortest way first.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::settled::is_settled;
use crate::state::{State, World};
use crate::step::{Operator, Who, steps};

/// A fast hash; states are compared by 64 bits of it.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        let mut h = self.0;
        h ^= h >> 32;
        h = h.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h ^ (h >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = Fold::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// What was found in a world.
pub struct Report {
    pub states: usize,
    pub transitions: usize,
    pub settled: usize,
    /// What was violated, how often, and the shortest way to it.
    pub violations: BTreeMap<String, (usize, String)>,
}

struct Search<'a> {
    world: &'a World,
    states: Vec<State>,
    /// From where, by what, at which node.
    came: Vec<(u32, &'static str, u8)>,
    known: HashMap<u64, u32, BuildHasherDefault<Fold>>,
    violations: BTreeMap<String, (usize, String)>,
}

/// Explores a world.
pub fn explore(world: &World) -> Report {
    let mut search = Search {
        world,
        states: Vec::new(),
        came: Vec::new(),
        known: HashMap::default(),
        violations: BTreeMap::new(),
    };
    let mut operator = Operator::default();
    search.put(world.start(), (u32::MAX, "start", 0));
    let mut by_itself: Vec<(u32, u32)> = Vec::new();
    let (mut transitions, mut settled, mut index) = (0, 0, 0);
    while index < search.states.len() {
        let state = search.states[index];
        let found = steps(world, &state, &mut operator);
        for what in found.violations {
            search.violated(what, index);
        }
        if found.edges.iter().all(|e| e.who == Who::World) {
            settled += 1;
            if let Err(what) = is_settled(world, &state) {
                search.violated(what, index);
            }
        }
        for edge in found.edges {
            transitions += 1;
            if edge.next == state {
                continue;
            }
            let to = search.put(edge.next, (index as u32, edge.what, edge.node as u8));
            if edge.who == Who::System {
                by_itself.push((index as u32, to));
            }
        }
        index += 1;
    }
    if let Some(on_a_circle) = circle(search.states.len(), &by_itself) {
        search.violated("C: it goes round in circles by itself".to_owned(), on_a_circle);
    }
    Report { states: search.states.len(), transitions, settled, violations: search.violations }
}

impl Search<'_> {
    fn put(&mut self, state: State, came: (u32, &'static str, u8)) -> u32 {
        let next = self.states.len() as u32;
        let index = *self.known.entry(fingerprint(&state)).or_insert(next);
        if index == next {
            self.states.push(state);
            self.came.push(came);
        }
        index
    }

    fn violated(&mut self, what: String, index: usize) {
        if let Some((count, _)) = self.violations.get_mut(&what) {
            *count += 1;
            return;
        }
        let way = self.way_to(index);
        self.violations.insert(what, (1, way));
    }

    fn way_to(&self, index: usize) -> String {
        let mut way = Vec::new();
        let mut at = index as u32;
        while at != u32::MAX {
            let (from, what, node) = self.came[at as usize];
            way.push(format!("{what} [{node}]"));
            at = from;
        }
        way.reverse();
        let state = &self.states[index];
        let nodes: Vec<String> =
            state.nodes[..self.world.nodes].iter().map(|n| format!("    {n:?}")).collect();
        format!("  {}\n  ends at {:?}\n{}", way.join("\n  "), state.fleet, nodes.join("\n"))
    }
}

/// A state on a circle of steps that happen by themselves, if there is one.
fn circle(states: usize, edges: &[(u32, u32)]) -> Option<usize> {
    let mut first = vec![0_u32; states + 1];
    let mut enter = vec![0_u32; states];
    for (from, to) in edges {
        first[*from as usize + 1] += 1;
        enter[*to as usize] += 1;
    }
    for i in 0..states {
        first[i + 1] += first[i];
    }
    let mut fill = first.clone();
    let mut after = vec![0_u32; edges.len()];
    for (from, to) in edges {
        after[fill[*from as usize] as usize] = *to;
        fill[*from as usize] += 1;
    }
    let mut free: Vec<usize> = (0..states).filter(|i| enter[*i] == 0).collect();
    let mut left = states;
    while let Some(state) = free.pop() {
        left -= 1;
        for next in &after[first[state] as usize..first[state + 1] as usize] {
            enter[*next as usize] -= 1;
            if enter[*next as usize] == 0 {
                free.push(*next as usize);
            }
        }
    }
    // What is left is on a circle or behind one; the way back from any of it leads onto one.
    (left > 0).then(|| {
        let mut into: HashMap<u32, u32> = HashMap::new();
        for (from, to) in edges.iter().filter(|(f, t)| enter[*f as usize] > 0 && enter[*t as usize] > 0) {
            into.entry(*to).or_insert(*from);
        }
        let mut at = enter.iter().position(|n| *n > 0).unwrap_or_default() as u32;
        for _ in 0..states {
            at = into.get(&at).copied().unwrap_or(at);
        }
        at as usize
    })
}
